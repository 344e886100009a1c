"""TopApp: the app around the views: which page is shown, the keys, the command line, failures.

    20261122-071611-63d104  4 ranks  3 min  live                     header
    3 waiting  1 in the debugger  ranks 1-3 wait for rank 0 ...       the headline
    ranks > rank 3   /reduce           a attach  / filter  F faults   breadcrumbs, keys of the page
    ...                                                               the page
    ranks groups ops timeline waits ...           ? help  q quit      footer, or the line that is typed

One clock asks the feed four times a second. A page is drawn when something has changed, and once a second
because ages grow; `pace` allows at most ten redraws a second, however fast keys come. A failure in a page
ends as a line on the screen and an entry of `troubles`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input

from distdbg.tui import head
from distdbg.tui.asking import Answered, ask_in_thread
from distdbg.tui.attach import attach
from distdbg.tui.cells import Filter
from distdbg.tui.commands import CommandError, Commands, sort_next, table_of
from distdbg.tui.frame import FrameApp
from distdbg.tui.help import HelpPage
from distdbg.tui.keys import KeyHint, keys_of, page_keys
from distdbg.tui.leaving import leave_on_signals
from distdbg.tui.line import Line
from distdbg.tui.pace import PacedPalette
from distdbg.tui.rank_roles import NOBODY, RankRoles, parts_of
from distdbg.tui.scrubber import SCRUB_KEYS, Scrubber
from distdbg.tui.sheet import Sheet
from distdbg.tui.table import RowTable
from distdbg.tui.terminal import theme_of
from distdbg.tui.view import Page
from distdbg.tui.views import VIEWS
from distdbg.view.feed import Action, Feed
from distdbg.view.snapshot import Snapshot, until_joined

_TICK_S: Final = 0.25
_AGES_S: Final = 1.0
_HINTS: Final = {
    "/": "a regular expression; a leading ! inverts it",
    ":": "a command; tab completes, help lists them",
}


class TopApp(FrameApp):
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(view.key, f"look('{view.title}')", view.title, tooltip=view.about)
            for view in VIEWS
        ),
        Binding("colon", "command", "command", tooltip="type a command"),
        Binding(
            "slash", "filter", "filter", tooltip="filter by a regular expression; !x inverts it"
        ),
        Binding("S", "sort", "sort", tooltip="sort the table by the next column"),
        Binding("F", "faults", "faults", tooltip="show only faults, or all"),
        Binding("enter", "open", "open", tooltip="show details of the selected row"),
        Binding(
            "escape",
            "back",
            "back",
            tooltip="back: close the typed line, clear the filter, leave the detail",
        ),
        Binding(
            "a",
            "attach",
            "attach",
            tooltip="attach a debugger to the selected rank, in this terminal",
        ),
        Binding("p", "pause", "pause", tooltip="pause the deadlines of the job, or resume them"),
        Binding("ctrl+p", "command_palette", "palette", tooltip="search all commands"),
        Binding("question_mark", "help", "help", tooltip="all keys and commands"),
        Binding("q,ctrl+c", "quit", "quit", tooltip="quit; the job keeps running"),
        Binding(
            "ctrl+z", "suspend_process", "to the shell", tooltip="suspend to the shell; fg returns"
        ),
        *(
            Binding(key, f"scrub('{what}', {by})", word, tooltip=about)
            for key, what, by, word, about in SCRUB_KEYS
        ),
    ]

    def __init__(
        self,
        feed: Feed,
        *,
        now: Callable[[], float] = time.time,
        view: str = "ranks",
        readonly: bool = False,
        theme: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(now)
        self.feed = feed
        self.snapshot: Snapshot = until_joined(feed.latest())
        self.is_readonly = readonly or not feed.can_change
        self.only_faults = False
        self.commands = Commands(self)
        self._first = view
        self._usual = {key.action: key for key in keys_of(self.BINDINGS)}
        self._drawn: Snapshot | None = None
        self._drawn_at = 0.0
        self._parts: tuple[object, bool, RankRoles] = (None, False, NOBODY)
        theme = theme or theme_of(os.environ if environ is None else environ)
        if theme is not None:
            self.theme = theme

    # ------------------------------------------------------------------------------- the frame

    def on_mount(self) -> None:
        self.look(self._first)
        self.set_interval(_TICK_S, self.tick)
        leave_on_signals(self)
        # textual draws only what has changed, on a screen that the shell has had meanwhile.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self.screen_stack[0].set_class(height < 12, "is-low")
        if width < head.MIN_WIDTH or height < head.MIN_HEIGHT:
            self.show_message(
                f"{width}x{height} is small: {head.MIN_WIDTH}x{head.MIN_HEIGHT} shows more",
                "warning",
            )
        if self.trail:
            self.draw()

    def now(self) -> float:
        """The moment that is shown: now, or that of a replay."""
        if self.feed.span() is not None:
            return self.snapshot.at
        return self.clock()

    @property
    def parts(self) -> RankRoles:
        """Which ranks are the cause, and which its victims."""
        snapshot = self.snapshot
        key = (snapshot.verdict, bool(snapshot.lines))
        if self._parts[0] is not key[0] or self._parts[1] != key[1]:
            self._parts = *key, parts_of(snapshot)
        return self._parts[2]

    async def on_event(self, event: events.Event) -> None:
        """A message in the last line goes away at the next key."""
        if isinstance(event, events.Key) and self.has_message:
            self.clear_message()
            self.put("foot", self._foot(self.size.width - 2))
        await super().on_event(event)

    def tick(self) -> None:
        """Look at the feed; draw what is new."""
        if self.is_running:  # who leaves may take the lines away before the clock
            self.guard("the feed", self._look_at_feed)

    def _look_at_feed(self) -> None:
        found = self.feed.latest()
        moment = self.clock()
        if found is self._drawn and 0 <= moment - self._drawn_at < _AGES_S:
            return
        self._drawn = found
        self.snapshot = until_joined(found)
        self._drawn_at = moment
        self.draw()

    def draw(self) -> None:
        snapshot, now = self.snapshot, self.now()
        self.put("head", head.head_text(snapshot, now, self.feed.title))
        self.put("state", head.state_text(snapshot, now, self.parts))
        width = self.size.width - 2
        if not self.has_message:
            self.put("foot", self._foot(width))
        for scrubber in self.screen_stack[0].query(Scrubber):  # none at the very end
            scrubber.draw()
        if self.trail:
            try:
                self.trail[-1].draw(snapshot, now)
                crumbs = [page.crumb for page in self.trail]
                self.put("place", head.place_text(crumbs, self._marks(), self._hints(), width))
            except Exception as error:  # noqa: BLE001 - one page; the rest goes on
                self.page_failed(error)

    def _marks(self) -> list[str]:
        marks = []
        if self.filter is not None:
            marks.append(f"/{self.filter.text}")
        if self.only_faults:
            marks.append("faults only")
        if self.is_readonly and self.feed.can_change:
            marks.append("read only")
        return marks

    def _hints(self) -> list[KeyHint]:
        """What can be done here, the most important first."""
        if not self.trail:
            return []
        page = self.trail[-1]
        usual = self._usual
        keys = [usual["back"]] if len(self.trail) > 1 else []
        if type(page).target is not Page.target:
            keys.append(usual["open"])
        can_change = not self.is_readonly and not self.snapshot.is_over
        if can_change and self.feed.address and page.rank_here() is not None:
            keys.append(usual["attach"])
        keys += [key for key in page_keys(page) if not key.moves]
        if self.feed.span() is not None:
            keys += [usual["scrub('play', 0)"], usual["scrub('step', 1)"]]
        if page.takes_filter:
            keys.append(usual["filter"])
        keys.append(usual["command"])
        if page.takes_filter:
            keys.append(usual["faults"])
        if table_of(self) is not None:
            keys.append(usual["sort"])
        if can_change:
            word = "resume" if self.snapshot.is_paused else "pause"
            keys.append(replace(usual["pause"], word=word))
        return list({key.short: key for key in reversed(keys)}.values())[::-1]

    def _foot(self, width: int) -> Content:
        if self.line.kind == ":":
            return self.commands.fitting_text(self.line.fitting(), width)
        usual = self._usual
        keys = [usual["help"], usual["quit"], usual["command_palette"]]
        views = [(view.key, view.title) for view in VIEWS]
        return head.foot_text(views, self.trail[0].crumb if self.trail else "", keys, width)

    # ------------------------------------------------------------------------------- getting around

    def look(self, title: str) -> None:
        """Show a view; what was open in another one is closed."""
        view = self.views.get(title)
        if view is None:
            known = next((view for view in VIEWS if view.title == title), None)
            if known is None:
                raise CommandError(f"there is no view {title!r}")
            view = self.views[title] = known()
        self.show([view])

    def open(self, page: Page) -> None:
        """Show a detail, on top of what is shown."""
        self.show([*self.trail, page])

    def open_detail(self, target: object) -> None:
        """Show the detail of what a cursor is on, where it has one."""
        from distdbg.tui.details import page_of  # a start needs none of them

        page = page_of(target)
        if page is not None:
            self.open(page)

    def show(self, trail: list[Page]) -> None:
        kept = {*trail, *self.views.values()}
        for page in self.trail:
            if page not in kept:
                page.remove()
            else:
                page.display = False
        self.trail = trail
        page = trail[-1]
        page.display = True
        self.feed.want(page.topics)
        self.call_next(self._enter, page)

    async def _enter(self, page: Page) -> None:
        """Draw it before it is seen for the first time."""
        if not self.trail or self.trail[-1] is not page:
            return
        if not page.is_attached:
            await self.screen_stack[0].query_one("#pages", Container).mount(page)
            # What it draws may depend on its size, which it has only then.
            self.call_after_refresh(self.draw)
        try:
            page.narrow(page.filter, self.only_faults)
            if not self.line.kind:
                page.first_focus().focus()
        except Exception as error:  # noqa: BLE001 - one page; the rest goes on
            self.page_failed(error)
        self.draw()

    def action_look(self, title: str) -> None:
        self.look(title)

    def action_press(self, key: str) -> None:
        """What a click on a key does: the same as the key."""
        self.simulate_key(key)

    def action_up_to(self, at: int) -> None:
        """Back to one of the breadcrumbs."""
        if 0 <= at < len(self.trail) - 1:
            self.show(self.trail[: at + 1])

    def action_open(self) -> None:
        page = self.trail[-1]
        self.guard(page.crumb, lambda: self.open_detail(page.target()))

    def on_row_table_chosen(self, message: RowTable.Chosen) -> None:
        self.action_open()

    def on_sheet_chosen(self, message: Sheet.Chosen) -> None:
        self.action_open()

    def action_attach(self) -> None:
        rank = self.trail[-1].rank_here()
        if rank is None:
            self.show_message("no rank is selected", "warning")
        else:
            attach(self, rank)

    async def action_back(self) -> None:
        if self.line.kind:
            self._close_line()
        elif self.filter is not None:
            self.filter = None
        elif len(self.trail) > 1:
            self.show(self.trail[:-1])
        elif self.only_faults:
            self.action_faults()

    def action_help(self) -> None:
        if not isinstance(self.trail[-1], HelpPage):
            self.open(HelpPage())

    def action_command_palette(self) -> None:
        if len(self.screen_stack) == 1:
            self.push_screen(PacedPalette(id="--command-palette"))

    @property
    def scrubber(self) -> Scrubber:
        """The line under the page of a replay."""
        return self.screen_stack[0].query_one(Scrubber)

    def action_scrub(self, what: str, by: int) -> None:
        """Move through the time of a replay."""
        self.guard("the replay", lambda: self.scrubber.move(what, by))

    # ------------------------------------------------------------------------------- filter, commands

    @property
    def filter(self) -> Filter | None:
        """What the page that is looked at leaves out; each page has its own."""
        return self.trail[-1].filter if self.trail else None

    @filter.setter
    def filter(self, only: Filter | None) -> None:
        self.trail[-1].filter = only
        self._narrow()

    def action_filter(self) -> None:
        self._open_line("/", self.filter.text if self.filter else "")

    def action_command(self, text: str = "") -> None:
        self._open_line(":", text)

    def _open_line(self, kind: str, text: str) -> None:
        completer = self.commands.complete if kind == ":" else lambda text: ()
        self.line.open(kind, text, _HINTS[kind], completer)
        self.clear_message()
        self.draw()

    def _close_line(self) -> None:
        self.line.close()
        self.trail[-1].first_focus().focus()
        self.draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        line = event.input
        if isinstance(line, Line) and line.kind == "/":
            self._filter_by(line.value)
        elif isinstance(line, Line) and line.kind == ":":
            self.clear_message()
            self.put("foot", self._foot(self.size.width - 2))

    def narrow_to(self, text: str) -> None:
        """Filter the page; with no text, not any more."""
        self._filter_by(text)

    def _filter_by(self, text: str) -> bool:
        """Show what fits so far; what is no regular expression yet changes nothing."""
        try:
            only = Filter(text) if text.removeprefix("!") else None
        except re.error as error:
            self.show_message(f"not a regular expression: {error}", "error")
            return False
        self.clear_message()
        self.filter = only
        return True

    def on_line_left(self, message: Line.Left) -> None:
        self._close_line()
        if message.kind == "/":
            self._filter_by(message.before)

    def on_line_done(self, message: Line.Done) -> None:
        if message.kind == "/":
            if self._filter_by(message.text):
                self._close_line()
            return
        self._close_line()
        if message.text:
            self.do(message.text)

    def do(self, text: str) -> None:
        """Do what could be typed behind `:`."""
        try:
            self.commands.do(text)
        except CommandError as error:
            self.show_message(str(error), "error")

    def action_sort(self) -> None:
        sort_next(self)

    def action_faults(self) -> None:
        self.only_faults = not self.only_faults
        self._narrow()

    def _narrow(self) -> None:
        page = self.trail[-1]
        self.guard(page.crumb, lambda: page.narrow(page.filter, self.only_faults))
        self.draw()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What the palette offers: all that the command bar knows."""
        for name, about, run in self.commands.for_palette():
            yield SystemCommand(name, about, run)

    # ------------------------------------------------------------------------------- changing the job

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "scrub":  # time can be moved in a replay alone
            return self.feed.span() is not None
        return True

    def may_change(self, action: Action) -> bool:
        """Whether that can be done to the job; why not is said."""
        why = ""
        if self.is_readonly:
            why = f"{action}: not with --readonly"
            if not self.feed.can_change:
                why = "a replay cannot be changed"
        elif self.snapshot.is_over:
            why = f"{action}: the job is over"
        if why:
            self.show_message(why, "error")
        return not why

    def change(self, action: Action, **words: object) -> None:
        """Do something to the job, in a thread; say what came of it."""
        if not self.may_change(action):
            return
        ask_in_thread(
            self,
            lambda: self.feed.do(action, **words),
            self.show_message,
            lambda line: self.show_message(line, "error"),
            lambda error: self.trouble(action, error),
        )

    def on_answered(self, message: Answered) -> None:
        self.guard("the job", message.then)

    def action_pause(self) -> None:
        self.change(Action.RESUME if self.snapshot.is_paused else Action.PAUSE)
