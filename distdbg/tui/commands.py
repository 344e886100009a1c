"""The commands of the command bar (`:`) and the palette. Help and documentation are made from the table."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from textual.content import Content
from textual.theme import Theme

from distdbg.tui.cells import one_line
from distdbg.tui.replayed import TimedFeed
from distdbg.tui.scrubber import Scrubber
from distdbg.tui.table import RowTable
from distdbg.tui.view import Dashboard
from distdbg.tui.views import VIEWS
from distdbg.view.feed import Action

_NO_TABLE = "no table to sort here"


class CommandError(Exception):
    """A command that cannot be done; for people."""


class CommandedApp(Dashboard, Protocol):
    """The dashboard that commands are given to (app.py)."""

    theme: str

    @property
    def current_theme(self) -> Theme:
        """The colours that are shown."""
        ...

    @property
    def available_themes(self) -> dict[str, Theme]:
        """All that can be, by name."""
        ...

    @property
    def scrubber(self) -> Scrubber:
        """The line under the page of a replay."""
        ...

    def look(self, title: str) -> None: ...

    def narrow_to(self, text: str) -> None:
        """Filter the page; with no text, not any more."""
        ...

    def confirm(self, text: str, then: Callable[[], None]) -> None:
        """Do `then` if the person says yes to `text`."""
        ...

    def do(self, text: str) -> None:
        """Do what could be typed behind `:`."""
        ...

    def exit(self) -> None: ...

    def action_faults(self) -> None: ...

    def action_help(self) -> None: ...


def _nothing(app: CommandedApp) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One word after the colon."""

    name: str
    argument: str = ""
    """What follows it, for the help: '[WHY]'; '' for nothing."""
    about: str
    changes: bool = False
    """Whether it changes the job: with --readonly there is no such command."""
    moves: bool = False
    """Whether it moves the time: there is no such command where time goes by itself."""
    run: Callable[[CommandedApp, str], None]
    fitting: Callable[[CommandedApp], Sequence[str]] = _nothing
    """What the argument may be, as far as that can be listed."""


#: What `:theme` takes beside the names of textual's themes.
_THEMES: Final = {"dark": "textual-dark", "light": "textual-light", "terminal": "ansi-dark"}
#: How rules for breakpoints begin; `distdbg break --help` tells more.
_RULES: Final = ("rank=", "kind=", "group=", "on=mismatch", "on=nan", "on=timeout", "on=exception")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise CommandError(f"expected a number, not {text!r}")
    return int(text)


def _needed(text: str, what: str) -> str:
    if not text:
        raise CommandError(f"expected {what}")
    return text


def _clear(app: CommandedApp, text: str) -> None:
    if text in ("", "all"):
        app.change(Action.CLEAR)
    else:
        app.change(Action.CLEAR, id=_number(text))


def _abort(app: CommandedApp, text: str) -> None:
    what = _needed(text, "the reason: abort the data is wrong")
    app.confirm(
        f"abort {app.snapshot.run}: every rank raises {what!r}?",
        lambda: app.change(Action.ABORT, what=what),
    )


def _stop(app: CommandedApp, text: str) -> None:
    app.confirm(
        f"stop {app.snapshot.run}, as Ctrl-C in its launcher does?",
        lambda: app.change(Action.STOP),
    )


def _theme(app: CommandedApp, text: str) -> None:
    if not text:
        text = "light" if app.current_theme.dark else "dark"
    name = _THEMES.get(text, text)
    if name not in app.available_themes:
        near = difflib.get_close_matches(text, _theme_names(app), 1)
        raise CommandError(f"no theme {text!r}; did you mean {near[0] if near else 'dark'}?")
    app.theme = name


def _theme_names(app: CommandedApp) -> Sequence[str]:
    return [*_THEMES, *sorted(app.available_themes)]


def _filter(app: CommandedApp, text: str) -> None:
    app.narrow_to(text)


def _sort(app: CommandedApp, text: str) -> None:
    why = sort_by(app, text.removeprefix("-").strip(), is_inverted=text.startswith("-"))
    if why:
        raise CommandError(why)


def _sortable(app: CommandedApp) -> Sequence[str]:
    table = table_of(app)
    return table.sortable if table is not None else []


def _scrubber(app: CommandedApp) -> Scrubber:
    if app.feed.span() is None:
        raise CommandError("not a replay: time cannot be moved")
    return app.scrubber


def _seek(app: CommandedApp, text: str) -> None:
    parts = text.removesuffix("s").strip().split(":")
    try:
        at = sum(float(part) * 60**place for place, part in enumerate(reversed(parts)))
    except ValueError:
        raise CommandError(f"expected a time: 12.5 or 3:05, not {text!r}") from None
    scrubber = _scrubber(app)
    begin, _ = app.feed.span() or (0.0, 0.0)
    scrubber.stop()
    scrubber.seek(begin + at)


def _positive(text: str) -> float:
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise CommandError(f"expected a number above 0, not {text!r}")
    return speed


def _diagnose(app: CommandedApp) -> None:
    if not isinstance(app.feed, TimedFeed):
        raise CommandError("a live job is diagnosed all the time")
    app.feed.request_verdict()
    app.show_message("diagnosing ...")


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
        name="filter", argument="[REGEX]", run=_filter,
        about="filter the rows; !REGEX inverts; empty: show all",
    ),
    Command(
        name="sort", argument="[COLUMN]", run=_sort, fitting=_sortable,
        about="sort the table by a column; -COLUMN reverses; empty: default order",
    ),
    Command(name="faults", about="show only faults, or all", run=lambda app, _: app.action_faults()),
    Command(
        name="pause", about="pause all deadlines of the job", changes=True,
        run=lambda app, _: app.change(Action.PAUSE),
    ),
    Command(
        name="resume", about="resume the deadlines", changes=True,
        run=lambda app, _: app.change(Action.RESUME),
    ),
    Command(
        name="break", argument="RULE", about="stop ranks before an op: rank=3,kind=all_reduce",
        changes=True, fitting=lambda app: _RULES,
        run=lambda app, text: app.change(Action.BREAK, rule=_needed(text, "a rule: rank=3,seq>=42")),
    ),
    Command(
        name="clear", argument="[ID]", about="clear a breakpoint, or all", changes=True,
        run=_clear, fitting=lambda app: ["all", *(str(one.id) for one in app.snapshot.armed)],
    ),
    Command(
        name="continue", argument="[RANKS]", about="continue ranks at a prompt", changes=True,
        run=lambda app, text: app.change(Action.CONTINUE, ranks=text or "all"),
        fitting=lambda app: ["all", *(str(one.rank) for one in app.snapshot.stopped)],
    ),
    Command(
        name="abort", argument="WHY", about="end the job: every rank raises these words; asks first",
        changes=True, run=_abort,
    ),
    Command(
        name="stop", about="end the job as Ctrl-C in its launcher does; asks first", changes=True,
        run=_stop,
    ),
    Command(
        name="theme", argument="[NAME]", about="dark, light, the terminal's colours, or one of textual's",
        run=_theme, fitting=_theme_names,
    ),
    Command(
        name="at", argument="TIME", about="show this moment: 12.5, or 3:05 after the start", moves=True,
        run=lambda app, text: _seek(app, _needed(text, "a time: 12.5 or 3:05")),
    ),
    Command(
        name="speed", argument="N", about="set the playback speed: 4, 0.01", moves=True,
        run=lambda app, text: _scrubber(app).set_speed(_positive(text)),
    ),
    Command(
        name="play", about="play or pause", moves=True, run=lambda app, _: _scrubber(app).play()
    ),
    Command(
        name="diagnose", about="diagnose this moment, even if it takes long", moves=True,
        run=lambda app, _: _diagnose(app),
    ),
    Command(name="help", about="all keys and commands", run=lambda app, _: app.action_help()),
    Command(name="quit", about="quit; the job keeps running", run=lambda app, _: app.exit()),
)  # fmt: skip


class Commands:
    def __init__(self, app: CommandedApp) -> None:
        self._app = app

    def all(self) -> list[Command]:
        """Those that are there: a job that is only looked at has none that changes it."""
        is_live = self._app.feed.span() is None
        return [
            one
            for one in COMMANDS
            if not (one.changes and self._app.is_readonly) and not (one.moves and is_live)
        ]

    def do(self, text: str) -> None:
        """Do what was typed; CommandError says what is wrong with it."""
        name, _, rest = text.strip().partition(" ")
        command = self._find(name)
        if rest and not command.argument:
            raise CommandError(f"{command.name} takes no argument")
        command.run(self._app, rest.strip())

    def _find(self, name: str) -> Command:
        known = {command.name: command for command in COMMANDS}
        fitting = [command for command in self.all() if command.name.startswith(name)]
        command = known.get(name) or (fitting[0] if len(fitting) == 1 else None)
        if command is None:
            if fitting:
                raise CommandError(f"{name}: {', '.join(c.name for c in fitting)}?")
            # What changes the job is never proposed for a word that is merely like it.
            harmless = [command.name for command in self.all() if not command.changes]
            near = difflib.get_close_matches(name, harmless, 1)
            raise CommandError(
                f"no command {name!r}" + (f"; did you mean {near[0]}?" if near else "")
            )
        if command.changes and self._app.is_readonly:
            why = "not with --readonly" if self._app.feed.can_change else "a replay is over"
            raise CommandError(f"{command.name}: {why}")
        return command

    def complete(self, text: str) -> Sequence[str]:
        """All that `text` could become; also of its argument, where that can be listed."""
        name, space, rest = text.partition(" ")
        if not space:
            return [
                command.name + " " * (not _ends(command))
                for command in self.all()
                if command.name.startswith(name)
            ]
        command = next((one for one in self.all() if one.name == name), None)
        if command is None:
            return []
        fitting = dict.fromkeys(command.fitting(self._app))
        return [f"{name} {one}" for one in fitting if one.startswith(rest) and one != rest]

    def fitting_text(self, fitting: Sequence[str], width: int) -> Content:
        """The footer while a command is typed: what fits, and what the first of them does."""
        names = [text.strip() for text in fitting]
        if not names:
            return Content.styled("no match; enter shows why, esc closes", "$text-muted")
        first = names[0].partition(" ")[0]
        command = next(one for one in COMMANDS if one.name == first)
        usage = f"{command.name} {command.argument}".strip()
        if len({name.partition(" ")[0] for name in names}) == 1:
            text = Content.styled(usage, "bold") + Content(f"  {command.about}")
            words = [name.partition(" ")[2] for name in names]
            if any(words):
                text = Content("  ".join(one_line(word) for word in words if word))
            return text.truncate(width, ellipsis=True)
        return Content("  ".join(names)).truncate(width, ellipsis=True)

    def for_palette(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """All of them; for one that needs an argument the line is opened."""
        for command in self.all():
            if command.argument and not command.argument.startswith("["):
                run = partial(self._app.action_command, f"{command.name} ")
                yield command.name, command.about, run
            else:
                yield command.name, command.about, partial(self._app.do, command.name)


def _ends(command: Command) -> bool:
    """Whether the name is all that has to be typed."""
    return not command.argument or command.argument.startswith("[")


def table_of(app: Dashboard) -> RowTable | None:
    """The table of the page, where it is one."""
    found = app.trail[-1].first_focus() if app.trail else None
    return found if isinstance(found, RowTable) else None


def sort_next(app: Dashboard) -> None:
    """Sort by the next column; after the last one in the usual order."""
    table = table_of(app)
    if table is None:
        app.show_message(_NO_TABLE, "warning")
        return
    table.action_sort(1)
    at = table.sorted_by
    app.show_message("in default order" if at is None else f"sorted by {table.columns[at].title}")


def sort_by(app: Dashboard, title: str, *, is_inverted: bool = False) -> str:
    """Sort by the column of this title, or how it begins; what was wrong with it, or ''."""
    table = table_of(app)
    if table is None:
        return _NO_TABLE
    names = [name for name in table.sortable if name.startswith(title)]
    if title and title not in names and len(names) != 1:
        return f"no column {title!r}: {', '.join(table.sortable)}"
    name = title if not title or title in names else names[0]
    table.sort_by(name, is_inverted=is_inverted)
    app.show_message(f"sorted by {name}" if name else "in default order")
    return ""
