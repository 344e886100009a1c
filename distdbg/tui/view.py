"""View: one way of looking at a job. A view draws snapshots; the app says when.

    Page        anything that can be on top of the breadcrumbs: a view, or the detail of something
    View        a page with a key of its own
    TablePage   a page that is one table

A page never asks the feed for what takes long in its own thread: `Page.ask` does it in another one. The keys
of a page are its BINDINGS: of each the description is one or two words for the footer, the tooltip a
sentence for the help. Actions of a page that change the job are named in `changes`; with --readonly they are
not there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from distdbg.tui.asking import Answered, Result, ask
from distdbg.tui.cells import Cell, Filter
from distdbg.tui.feed import Feed, Topic
from distdbg.tui.snapshot import Snapshot
from distdbg.tui.table import Column, RowTable

if TYPE_CHECKING:
    from distdbg.tui.app import TopApp


class Page(Vertical):
    """Something that fills the screen between header and footer."""

    topics: ClassVar[frozenset[Topic]] = frozenset()
    """What it needs of the feed while it is seen."""
    takes_filter: ClassVar[bool] = False
    changes: ClassVar[frozenset[str]] = frozenset()
    """Names of its actions that change the job."""
    DEFAULT_CSS = "Page { height: 1fr; }"

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.filter: Filter | None = None
        """What the person has typed behind `/` here."""
        self._asked = 0

    @property
    def crumb(self) -> str:
        """What the breadcrumbs call it."""
        return type(self).__name__.lower()

    @property
    def top(self) -> TopApp:
        return cast("TopApp", self.app)

    @property
    def feed(self) -> Feed:
        return self.top.feed

    def draw(self, snapshot: Snapshot, now: float) -> None:
        """Show it. Called while the page is seen, when something has changed and once a second."""

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        """The filter, or the faults-only toggle, has changed."""

    def detail(self) -> Page | None:
        """What Enter opens now."""
        return None

    def first_focus(self) -> Widget:
        """What gets the keys."""
        return self

    def redraw(self) -> None:
        """Draw what is known once more, now."""
        self.draw(self.top.snapshot, self.top.now())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action in self.changes and self.top.is_readonly)

    def ask(self, question: Callable[[], Result], then: Callable[[Result], object]) -> None:
        """Ask the feed in a thread; one question of a page at a time, the newest counts."""
        self._asked += 1
        number, top = self._asked, self.top

        def if_newest(tell: Callable[[], object]) -> None:
            if number == self._asked:
                tell()

        ask(
            self,
            question,
            lambda answer: if_newest(lambda: then(answer)),
            lambda line: if_newest(lambda: top.say(line, "error")),
            lambda error: if_newest(lambda: top.trouble(self.crumb, error)),
        )

    def on_answered(self, message: Answered) -> None:
        self.top.guard(self.crumb, message.then)


class View(Page):
    """One of the views."""

    key: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    """One line for the help."""

    @property
    def crumb(self) -> str:
        return self.title


class TablePage(Page):
    """A page that is one table. Subclasses say which rows there are, and what is in them."""

    columns: ClassVar[Sequence[Column]]
    takes_filter: ClassVar[bool] = True

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.snapshot = Snapshot()
        self.now = 0.0
        self.table = RowTable(
            self.columns, self.cells, is_fault=self.is_fault, sort_key=self.sort_key
        )

    def compose(self) -> ComposeResult:
        yield self.table

    def keys(self) -> Sequence[Hashable]:
        """The rows of `self.snapshot`, in their usual order."""
        raise NotImplementedError

    def cells(self, key: Any) -> Sequence[Cell]:
        """What is in a row; made for each row in sight."""
        raise NotImplementedError

    def is_fault(self, key: Any) -> bool:
        """Whether the faults-only toggle leaves it."""
        return False

    def sort_key(self, key: Any, at: int) -> Any:
        """What a row is sorted by in a column: of one type in each column."""
        return self.cells(key)[at].text

    def draw(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot, self.now = snapshot, now
        self.table.show(self.keys())

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        self.table.filter, self.table.only_faults = only, only_faults
        self.table.again()

    def first_focus(self) -> Widget:
        return self.table
