"""TopApp: the frame around the views. Header, breadcrumbs, the page that is looked at, keys.

    distdbg top · 20261122-071611 · 4 ranks · 3 min · live          header
    3 waiting  1 in the debugger · ranks 1-3 wait for rank 0 ...     what is wrong, in one line
    ranks > rank 3                              /reduce  faults      breadcrumbs
    ...                                                              the page
    r ranks  g groups ...  : command  / filter  ? help               footer, or the line that is typed

One clock asks the feed four times a second. A page is drawn when something has changed, and once a second
because ages grow; so there are at most ten redraws a second, whoever types.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from distdbg.errors import format_ranks
from distdbg.tui.attach import attach
from distdbg.tui.cells import Filter, Tone, age, is_fault, one_line, tone_of
from distdbg.tui.commands import CommandError, Commands
from distdbg.tui.feed import Action, Feed
from distdbg.tui.help import HelpPage
from distdbg.tui.sheet import Sheet
from distdbg.tui.snapshot import Link, Snapshot
from distdbg.tui.table import RowTable
from distdbg.tui.view import Page
from distdbg.tui.views import VIEWS

_TICK_S: Final = 0.25
_AGES_S: Final = 1.0
#: How long a message stays in place of the keys.
_SAID_S: Final = 6.0


class TopApp(App[None]):
    """The dashboard of one job."""

    TITLE = "distdbg top"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Screen { layout: vertical; }
    #head, #state, #crumbs, #foot { height: 1; padding: 0 1; }
    #head { background: $panel; text-style: bold; }
    #crumbs { color: $text-muted; }
    #pages { height: 1fr; }
    #foot { background: $panel; color: $text-muted; }
    #line { height: 1; border: none; padding: 0 1; display: none; }
    #line.is-open { display: block; }
    .tone--fault { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(view.key, f"look('{view.title}')", view.about) for view in VIEWS),
        Binding("colon", "command", "type a command"),
        Binding("slash", "filter", "show only what fits a regular expression; !x: what does not"),
        Binding("F", "faults", "only faults, or all"),
        Binding("enter", "open", "open what is under the cursor"),
        Binding("escape", "back", "back, or close the line that is typed"),
        Binding("question_mark", "help", "all keys"),
        Binding("a", "attach", "a debugger on the rank under the cursor, in this terminal"),
        Binding("p", "pause", "stop the clock of the job, or let it run on"),
        Binding("q", "quit", "leave; the job goes on"),
    ]

    def __init__(
        self,
        feed: Feed,
        *,
        now: Callable[[], float] = time.time,
        view: str = "ranks",
        readonly: bool = False,
        theme: str | None = None,
    ) -> None:
        super().__init__()
        self.feed = feed
        self.snapshot: Snapshot = feed.latest()
        self.is_readonly = readonly or not feed.can_change
        self._clock = now
        self._first = view
        self._drawn: Snapshot | None = None
        self._drawn_at = 0.0
        self._said_until = 0.0
        self._typing = ""
        self.trail: list[Page] = []
        self.filter: Filter | None = None
        self.only_faults = False
        self.commands = Commands(self)
        if theme is not None:
            self.theme = theme

    # ------------------------------------------------------------------------------- the frame

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="state", markup=False)
        yield Static(id="crumbs", markup=False)
        yield Container(id="pages")
        yield Input(id="line", compact=True, select_on_focus=False)
        yield Static(id="foot", markup=False)

    def on_mount(self) -> None:
        self.look(self._first)
        self.set_interval(_TICK_S, self.tick)

    def now(self) -> float:
        """The moment that is shown: now, or that of a replay."""
        if self.feed.span() is not None:
            return self.snapshot.at
        return self._clock()

    def tick(self) -> None:
        """Look at the feed; draw what is new."""
        found = self.feed.latest()
        moment = self._clock()
        if found is self._drawn and 0 <= moment - self._drawn_at < _AGES_S:
            return
        self.snapshot = self._drawn = found
        self._drawn_at = moment
        self.draw()

    def draw(self) -> None:
        """Draw all of it."""
        snapshot, now = self.snapshot, self.now()
        self.query_one("#head", Static).update(head_text(snapshot, now, self.feed.title))
        self.query_one("#state", Static).update(state_text(snapshot))
        self.draw_crumbs()
        if self._clock() >= self._said_until:
            self._draw_keys()
        if self.trail:
            self.trail[-1].draw(snapshot, now)

    def draw_crumbs(self) -> None:
        """Where we are, and what narrows it."""
        text = " > ".join(page.crumb for page in self.trail)
        if self.filter is not None:
            text += f"   /{self.filter.text}"
        if self.only_faults:
            text += "   faults only"
        if self.is_readonly and self.feed.can_change:
            text += "   read only"
        hints = self.trail[-1].hints if self.trail else ""
        crumbs = self.query_one("#crumbs", Static)
        if hints and len(text) + len(hints) + 3 <= crumbs.content_size.width:
            text = text.ljust(crumbs.content_size.width - len(hints)) + hints
        crumbs.update(Content(text))

    def _draw_keys(self) -> None:
        keys = [(view.key, view.title) for view in VIEWS]
        keys += [(":", "command"), ("/", "filter"), ("F", "faults"), ("?", "help"), ("q", "leave")]
        self.query_one("#foot", Static).update(
            Content("  ").join(Content.assemble((key, "bold"), f" {word}") for key, word in keys)
        )

    def say(self, text: str, severity: str = "information") -> None:
        """Tell the person something, in the last line, for a few seconds."""
        style = {"error": "$text-error", "warning": "$text-warning"}.get(severity, "$foreground")
        self._said_until = self._clock() + _SAID_S
        self.query_one("#foot", Static).update(Content.styled(one_line(text), style))

    # ------------------------------------------------------------------------------- getting around

    def look(self, title: str) -> None:
        """Show a view; what was open in another one is closed."""
        for view in VIEWS:
            if view.title == title:
                self._show([view()])
                return
        raise CommandError(f"there is no view {title!r}")

    def open(self, page: Page) -> None:
        """Show a detail, on top of what is shown."""
        self._show([*self.trail, page])

    def _show(self, trail: list[Page]) -> None:
        pages = self.query_one("#pages", Container)
        for page in self.trail:
            if page not in trail:
                page.remove()
            else:
                page.display = False
        self.trail = trail
        page = trail[-1]
        page.display = True
        self.feed.want(page.topics)
        if not page.is_attached:
            pages.mount(page)
        self.call_after_refresh(self._arrive, page)

    def _arrive(self, page: Page) -> None:
        if page.is_attached and self.trail and self.trail[-1] is page:
            page.narrow(self.filter, self.only_faults)
            page.first_focus().focus()
            self.draw()

    def action_look(self, title: str) -> None:
        self.look(title)

    def action_open(self) -> None:
        detail = self.trail[-1].detail()
        if detail is not None:
            self.open(detail)

    def on_row_table_chosen(self, message: RowTable.Chosen) -> None:
        self.action_open()

    def on_sheet_chosen(self, message: Sheet.Chosen) -> None:
        self.action_open()

    def action_attach(self) -> None:
        rank = self.trail[-1].rank_here()
        if rank is None:
            self.say("no rank is under the cursor", "warning")
        else:
            attach(self, rank)

    async def action_back(self) -> None:
        if self._typing:
            self._close_line()
        elif len(self.trail) > 1:
            self._show(self.trail[:-1])
        elif self.filter is not None or self.only_faults:
            self.filter, self.only_faults = None, False
            self._narrow()

    def action_help(self) -> None:
        if not isinstance(self.trail[-1], HelpPage):
            self.open(HelpPage())

    # ------------------------------------------------------------------------------- filter, commands

    def action_filter(self) -> None:
        self._open_line("/", self.filter.text if self.filter else "")

    def action_command(self) -> None:
        self._open_line(":", "")

    def type_command(self, text: str) -> None:
        """Open the command bar with this in it."""
        self._open_line(":", text)

    def _open_line(self, kind: str, text: str) -> None:
        line = self.query_one("#line", Input)
        self._typing = kind
        line.placeholder = (
            "a regular expression; ! before it: what does not fit"
            if kind == "/"
            else ("a command; help lists them")
        )
        line.value = text
        line.cursor_position = len(text)
        line.add_class("is-open")
        line.focus()

    def _close_line(self) -> None:
        self._typing = ""
        line = self.query_one("#line", Input)
        line.remove_class("is-open")
        self.trail[-1].first_focus().focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id != "line":
            return
        kind, text = self._typing, event.value.strip()
        if kind == "/":
            try:
                self.filter = Filter(text) if text else None
            except re.error as error:
                self.say(f"no regular expression: {error}", "error")
                return
            self._close_line()
            self._narrow()
            return
        self._close_line()
        if text:
            try:
                self.commands.do(text)
            except CommandError as error:
                self.say(str(error), "error")

    def action_faults(self) -> None:
        self.only_faults = not self.only_faults
        self._narrow()

    def _narrow(self) -> None:
        self.trail[-1].narrow(self.filter, self.only_faults)
        self.draw()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What the palette offers: all that the command bar knows, and textual's own."""
        yield from super().get_system_commands(screen)
        for name, about, run in self.commands.for_palette():
            yield SystemCommand(name, about, run)

    # ------------------------------------------------------------------------------- changing the job

    def change(self, action: Action, **words: object) -> None:
        """Do something to the job, in a thread; say what came of it."""
        if self.is_readonly:
            self.say(
                "a replay cannot be changed"
                if not self.feed.can_change
                else f"{action}: not with --readonly",
                "error",
            )
            return
        page = self.trail[-1]
        page.ask(lambda: self.feed.do(action, **words), self.say)

    def action_pause(self) -> None:
        self.change(Action.RESUME if self.snapshot.is_paused else Action.PAUSE)


def head_text(snapshot: Snapshot, now: float, title: str) -> Content:
    """Which job, how big, how long, and whether it lives."""
    parts = [snapshot.run or title]
    if snapshot.ranks or snapshot.world_size:
        count = max(len(snapshot.ranks), snapshot.world_size)
        hosts = {row.host for row in snapshot.ranks.values()}
        parts.append(
            f"{count} rank{'s' * (count != 1)}"
            + (f" on {len(hosts)} hosts" if len(hosts) > 1 else "")
        )
    if snapshot.attempt:
        parts.append(f"restart {snapshot.attempt}")
    if snapshot.began is not None:
        parts.append(age(now - snapshot.began))
    tone = {Link.LOST: "$text-error", Link.OVER: "$text-muted", Link.LIVE: "$text-success"}
    link = snapshot.link + (f": {snapshot.link_why}" if snapshot.link_why else "")
    text = Content("  ".join(map(one_line, parts)) + "  ")
    text += Content.styled(one_line(link), tone.get(snapshot.link, "$text-accent"))
    if snapshot.is_paused:
        who = f" ({', '.join(snapshot.held_by)})" if snapshot.held_by else ""
        text += Content.styled(f"  the clock stands{who}", "$text-warning")
    return text


def state_text(snapshot: Snapshot) -> Content:
    """How many ranks are in which state, and what is wrong."""
    counts = Counter(row.state for row in snapshot.ranks.values())
    text = Content("")
    order = sorted(counts, key=lambda state: (not is_fault(state), state))
    for state in order:
        tone = {
            Tone.FAULT: "$text-error",
            Tone.WARN: "$text-warning",
            Tone.GOOD: "$text-success",
            Tone.ACCENT: "$text-accent",
        }.get(tone_of(state), "$text-muted")
        text += Content.styled(f"{counts[state]} {state}  ", tone)
    if snapshot.lines:
        text += Content.styled(one_line(snapshot.lines[0]), "bold $text-error")
    elif snapshot.abort:
        text += Content.styled(one_line(f"aborted: {snapshot.abort}"), "bold $text-error")
    return text


def ranks_text(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0-2'."""
    text = format_ranks(list(ranks))
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"
