"""View: one way of looking at a job. A view draws snapshots; the app says when.

    Page        anything that can be on top of the breadcrumbs: a view, or the detail of something
    View        a page with a key of its own
    TablePage   a page that is one table

A page never asks the feed for what takes long in its own thread: `Page.ask` does it in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from distdbg.errors import DistError
from distdbg.tui.cells import Cell, Filter
from distdbg.tui.feed import Feed, Topic
from distdbg.tui.snapshot import Snapshot
from distdbg.tui.table import Column, RowTable

if TYPE_CHECKING:
    from distdbg.tui.app import TopApp

Result = TypeVar("Result")


class Page(Vertical):
    """Something that fills the screen between header and footer."""

    topics: ClassVar[frozenset[Topic]] = frozenset()
    """What it needs of the feed while it is seen."""
    takes_filter: ClassVar[bool] = False
    DEFAULT_CSS = "Page { height: 1fr; }"

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

    def ask(self, question: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Ask the feed in a thread; one question of a page at a time, the newest counts."""

        def work() -> None:
            try:
                answer = question()
            except DistError as error:
                self.app.call_from_thread(self.top.say, str(error).split("\n")[0], "error")
                return
            if self.is_attached:
                self.app.call_from_thread(then, answer)

        self.run_worker(work, thread=True, exclusive=True, exit_on_error=False)


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
