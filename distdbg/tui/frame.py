"""FrameApp: the lines around a page, the pace of redraws, and what becomes of failures.

It knows what a page is but not which there are, and no keys: that is TopApp. Nothing that fails here ends in
a traceback: a page that fails is replaced by one that says so; if the frame itself fails the app ends with
one line. The traceback is in the file of `troubles`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from textual._context import active_message_pump
from textual.actions import ActionParseResult
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.dom import DOMNode
from textual.filter import NoColor
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from distdbg.errors import InternalError
from distdbg.tui.cells import one_line
from distdbg.tui.line import Line, Question
from distdbg.tui.pace import PacedScreen, RedrawPace
from distdbg.tui.scrubber import Scrubber
from distdbg.tui.trouble import TroubleLog, TroublePage
from distdbg.tui.view import Page, View

#: How long a message stays in place of the footer.
_SAID_S: Final = 6.0
#: What pages that fail again and again may do before the app gives up.
_MAX_FAILURES: Final = 50


class FrameApp(App[None]):
    TITLE = "distdbg top"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Screen { layout: vertical; }
    #head, #state, #place, #foot, #question {
        height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
    }
    #head { background: $panel; text-style: bold; }
    #place { color: $text-muted; }
    #pages { height: 1fr; }
    #foot { background: $panel; }
    #line { height: 1; border: none; padding: 0 1; display: none; }
    #question { display: none; }
    #line.is-open, #question.is-open { display: block; }
    App:nocolor RowTable > .table--cursor, App:nocolor Sheet > .table--cursor {
        text-style: reverse;
    }
    Screen.is-low #state, Screen.is-low #place { display: none; }
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.pace = RedrawPace()
        self.troubles = TroubleLog()
        self.trail: list[Page] = []
        """What the breadcrumbs show: a view, and the details that were opened from there."""
        self.views: dict[str, View] = {}
        """Those that were looked at, by title; they stay as they were left."""
        self.clock = now
        self._said_until = 0.0
        self._texts: dict[str, Content] = {}
        self._failures = 0
        if self.no_color:
            # textual would write shades of grey; who wants no colour wants none.
            self.ansi_color = True
            self._filters[-1] = NoColor()

    def get_default_screen(self) -> Screen[Any]:
        return PacedScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="state", markup=False)
        # Not as links: they have colours of their own.
        place = Static(id="place", markup=False)
        place.auto_links = False
        yield place
        yield Container(id="pages")
        yield Scrubber(id="scrub")
        yield Line(id="line")
        yield Question(id="question")
        foot = Static(id="foot", markup=False)
        foot.auto_links = False
        yield foot

    # ------------------------------------------------------------------------------- lines

    @property
    def line(self) -> Line:
        """What is typed, while it is open."""
        return self.screen_stack[0].query_one("#line", Line)

    def put(self, name: str, text: Content) -> None:
        """Change a line of the frame where it is another one now."""
        if self._texts.get(name) != text:
            self._texts[name] = text
            # At the very end its timers may come once more, when the lines are gone.
            for line in self.screen_stack[0].query(f"#{name}").results(Static):
                line.update(text, layout=False)

    def show_message(self, text: str, severity: str = "information") -> None:
        """Tell the person something, in the last line, for a few seconds."""
        style = {"error": "$text-error", "warning": "$text-warning"}.get(severity, "$foreground")
        self._said_until = self.clock() + _SAID_S
        self.put("foot", Content.styled(one_line(text), style))

    @property
    def has_message(self) -> bool:
        """Whether a message is where the footer would be."""
        return self.clock() < self._said_until

    def clear_message(self) -> None:
        """Let the footer come back."""
        self._said_until = 0.0

    def confirm(self, text: str, then: Callable[[], None]) -> None:
        """Do `then` if the person says yes to `text`."""
        screen = self.screen_stack[0]
        foot = screen.query_one("#foot", Static)
        foot.display = False

        def after() -> None:
            foot.display = True
            self.trail[-1].first_focus().focus()

        screen.query_one("#question", Question).open(text, then, after)

    def show(self, trail: list[Page]) -> None:
        """Show the last of these, with the others behind it."""
        raise InternalError("a frame without pages")

    # ------------------------------------------------------------------------------- what fails

    def guard(self, what: str, work: Callable[[], object]) -> None:
        """Do it; what fails becomes a line."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a dashboard goes on
            self.trouble(what, error)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """What a key does; what fails becomes a line."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:  # noqa: BLE001 - a dashboard goes on
            name = action if isinstance(action, str) else action[1]
            self.trouble(name.rpartition(".")[2].partition("(")[0].replace("_", " "), error)
            return True

    def trouble(self, what: str, error: BaseException) -> None:
        """Say that something of ours has failed, and write it down."""
        line = self.troubles.note(f"{what} failed", error)
        where = f"; see {self.troubles.path}" if self.troubles.path else ""
        self.show_message(line + where, "error")

    def page_failed(self, error: BaseException) -> None:
        """Put a page that says so in the place of the one that is looked at."""
        self._failures += 1
        if not self.trail or self._failures > _MAX_FAILURES:
            self.give_up(error)
            return
        page = self.trail[-1]
        line = self.troubles.note(f"{page.crumb} failed", error)
        if isinstance(page, TroublePage):
            return
        if page in self.views.values():
            del self.views[page.crumb]
        self.show([*self.trail[:-1], TroublePage(page.crumb, line, self.troubles.path)])

    def _handle_exception(self, error: Exception) -> None:
        # textual would end with a traceback. Here only what nobody can go on without ends the app.
        pump = active_message_pump.get(None)
        page = self.trail[-1] if self.trail else None
        if page is not None and isinstance(pump, Widget) and page in pump.ancestors_with_self:
            self.page_failed(error)
        else:
            self.give_up(error)

    def give_up(self, error: BaseException) -> None:
        """End with one line: the frame itself has failed."""
        if isinstance(error, Exception) and self._exception is None:
            self._exception = error  # a test's pilot raises it
            self._exception_event.set()
        line = self.troubles.note("the dashboard failed", error)
        where = f"\nmore is in {self.troubles.path}" if self.troubles.path else ""
        self.exit(
            return_code=InternalError.exit_code, message=f"{line}{where}\nthe job keeps running"
        )
