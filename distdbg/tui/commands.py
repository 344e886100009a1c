"""What the command bar (`:`) and the palette know. The help and the documentation are made from the table."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from distdbg.tui.feed import Action
from distdbg.tui.views import VIEWS

if TYPE_CHECKING:
    from distdbg.tui.app import TopApp


class CommandError(Exception):
    """A command that cannot be done; for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One word after the colon."""

    name: str
    argument: str = ""
    """What follows it, for the help: '[WHY]'; '' for nothing."""
    about: str
    changes: bool = False
    """Whether it changes the job."""
    run: Callable[[TopApp, str], None]


def _number(text: str) -> int:
    if not text.isdecimal():
        raise CommandError(f"expected a number, not {text!r}")
    return int(text)


def _needed(text: str, what: str) -> str:
    if not text:
        raise CommandError(f"expected {what}")
    return text


def _clear(app: TopApp, text: str) -> None:
    if text in ("", "all"):
        app.change(Action.CLEAR)
    else:
        app.change(Action.CLEAR, id=_number(text))


COMMANDS: tuple[Command, ...] = (
    *(
        Command(
            name=view.title,
            about=view.about,
            run=lambda app, _, title=view.title: app.look(title),  # type: ignore[misc]  # a default
        )
        for view in VIEWS
    ),
    Command(
        name="pause", about="stop all deadlines of the job", changes=True,
        run=lambda app, _: app.change(Action.PAUSE),
    ),
    Command(
        name="resume", about="let the deadlines run on", changes=True,
        run=lambda app, _: app.change(Action.RESUME),
    ),
    Command(
        name="break", argument="RULE", about="stop ranks before an op: rank=3,kind=all_reduce",
        changes=True,
        run=lambda app, text: app.change(Action.BREAK, rule=_needed(text, "a rule: rank=3,seq>=42")),
    ),
    Command(
        name="clear", argument="[ID]", about="take back a breakpoint, or all", changes=True,
        run=_clear,
    ),
    Command(
        name="continue", argument="[RANKS]", about="let ranks at a prompt go on", changes=True,
        run=lambda app, text: app.change(Action.CONTINUE, ranks=text or "all"),
    ),
    Command(
        name="abort", argument="WHY", about="end the job: every rank raises these words",
        changes=True,
        run=lambda app, text: app.change(Action.ABORT, what=_needed(text, "the reason")),
    ),
    Command(
        name="stop", about="end the job as Ctrl-C in its launcher does", changes=True,
        run=lambda app, _: app.change(Action.STOP),
    ),
    Command(name="help", about="all keys and commands", run=lambda app, _: app.action_help()),
    Command(name="quit", about="leave; the job goes on", run=lambda app, _: app.exit()),
)  # fmt: skip


class Commands:
    """The commands of one app."""

    def __init__(self, app: TopApp) -> None:
        self._app = app
        self._by_name = {command.name: command for command in COMMANDS}

    def do(self, text: str) -> None:
        """Do what was typed; CommandError says what is wrong with it."""
        name, _, rest = text.strip().partition(" ")
        fitting = [command for command in COMMANDS if command.name.startswith(name)]
        command = self._by_name.get(name) or (fitting[0] if len(fitting) == 1 else None)
        if command is None:
            near = difflib.get_close_matches(name, self._by_name, 1)
            if fitting:
                raise CommandError(f"{name}: {', '.join(c.name for c in fitting)}?")
            raise CommandError(
                f"no command {name!r}" + (f"; did you mean {near[0]}?" if near else "")
            )
        if rest and not command.argument:
            raise CommandError(f"{command.name} takes nothing behind it")
        command.run(self._app, rest.strip())

    def for_palette(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """Those that need nothing behind them."""
        for command in COMMANDS:
            if not command.argument or command.argument.startswith("["):
                yield command.name, command.about, partial(command.run, self._app, "")
