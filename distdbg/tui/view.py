"""View: one way of looking at a job. A view draws snapshots; the app says when.

    Page        anything that can be on top of the breadcrumbs: a view, or the detail of something
    View        a page with a key of its own
    TablePage   a page that is one table, with a few lines over it where there is something to say
    SheetPage   a page that is text

A page never asks the feed for what takes long in its own thread: `Page.ask_feed` does it in another one. The
keys of a page are its BINDINGS: of each the description is one or two words for the footer, the tooltip a
sentence for the help. Actions of a page that change the job are named in `changes`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Protocol, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from distdbg.errors import DistError
from distdbg.tui.asking import Answered, Result, ask_in_thread
from distdbg.tui.cells import Cell, Filter
from distdbg.tui.cursor_view import CursorView
from distdbg.tui.rank_roles import RankRoles
from distdbg.tui.sheet import Sheet, SheetLine
from distdbg.tui.table import RowTable, TableColumn
from distdbg.tui.targets import rank_of
from distdbg.view.feed import Action, Feed, Topic
from distdbg.view.snapshot import Snapshot


class Dashboard(Protocol):
    """What pages and commands need of the app around them (app.py)."""

    feed: Feed
    snapshot: Snapshot
    is_readonly: bool
    trail: list[Page]

    @property
    def parts(self) -> RankRoles:
        """Which ranks are the cause, and which its victims."""
        ...

    def now(self) -> float:
        """The moment that is shown."""
        ...

    def tick(self) -> None:
        """Look at the feed; draw what is new."""
        ...

    def draw(self) -> None:
        """Draw all of it."""
        ...

    def open(self, page: Page) -> None:
        """Show a detail, on top of what is shown."""
        ...

    def open_detail(self, target: object) -> None:
        """Show the detail of what a cursor is on, where it has one."""
        ...

    def action_open(self) -> None:
        """The same for the page that is shown."""
        ...

    def action_command(self, text: str = "") -> None:
        """Have a command typed that begins so."""
        ...

    def may_change(self, action: Action) -> bool:
        """Whether that can be done to the job; why not is said."""
        ...

    def change(self, action: Action, **words: object) -> None:
        """Do something to the job, in a thread; say what came of it."""
        ...

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether there is this action now."""
        ...

    def suspend(self) -> contextlib.AbstractContextManager[None]:
        """Give the terminal away until the block ends."""
        ...

    def show_message(self, text: str, severity: str = "information") -> None:
        """Tell the person something, in the last line, for a few seconds."""
        ...

    def guard(self, what: str, work: Callable[[], object]) -> None:
        """Do it; what fails becomes a line."""
        ...

    def trouble(self, what: str, error: BaseException) -> None:
        """Say that something of ours has failed, and write it down."""
        ...


class Page(Vertical):
    """Something that fills the screen between header and footer."""

    topics: ClassVar[frozenset[Topic]] = frozenset()
    """What it needs of the feed while it is seen."""
    takes_filter: ClassVar[bool] = False
    changes: ClassVar[frozenset[str]] = frozenset()
    """Names of its actions that change the job: with --readonly no help and no footer has them."""
    DEFAULT_CSS = "Page { height: 1fr; }"
    _is_asking = False
    _asked_at: float | None = None

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.filter: Filter | None = None
        """What the person has typed behind `/` here."""
        self._asked = 0
        self._open_questions = 0

    @property
    def crumb(self) -> str:
        """What the breadcrumbs call it."""
        return type(self).__name__.lower()

    @property
    def top(self) -> Dashboard:
        return cast(Dashboard, self.app)

    @property
    def parts(self) -> RankRoles:
        """The causes of what is wrong, and the victims."""
        return self.top.parts

    @property
    def feed(self) -> Feed:
        return self.top.feed

    def draw(self, snapshot: Snapshot, now: float) -> None:
        """Show it. Called while the page is seen, when something has changed and once a second."""

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        """The filter, or the faults-only toggle, has changed."""

    def target(self) -> object:
        """What the cursor is on, where that is something (targets.py)."""
        return None

    def rank_here(self) -> int | None:
        """The rank under the cursor: what `a` attaches to."""
        return rank_of(self.target())

    def first_focus(self) -> Widget:
        """What gets the keys."""
        return self

    def redraw(self) -> None:
        """Draw what is known once more, now."""
        self.draw(self.top.snapshot, self.top.now())

    def ask_feed(self, question: Callable[[], Result], then: Callable[[Result], object]) -> None:
        """Ask the feed in a thread; one question of a page at a time, the newest counts."""
        self._asked += 1
        self._open_questions += 1
        number, top = self._asked, self.top

        def if_newest(tell: Callable[[], object]) -> None:
            if number == self._asked:
                tell()

        ask_in_thread(
            self,
            question,
            lambda answer: if_newest(lambda: then(answer)),
            lambda line: if_newest(lambda: top.show_message(line, "error")),
            lambda error: if_newest(lambda: top.trouble(self.crumb, error)),
        )

    @property
    def waits_for_answer(self) -> bool:
        """Whether more is about to be shown than is now."""
        return self._open_questions > 0

    def on_answered(self, message: Answered) -> None:
        self._open_questions -= 1
        self.top.guard(self.crumb, message.then)

    def keep_asking(
        self,
        question: Callable[[], Result],
        then: Callable[[Result | DistError], None],
        now: float,
        every_s: float,
    ) -> None:
        """Ask once the last answer is there and so much time has passed, on the clock that is shown."""
        if self._is_asking or (self._asked_at is not None and abs(now - self._asked_at) < every_s):
            return
        self._is_asking, self._asked_at = True, now
        self._open_questions += 1

        def work() -> Result | DistError:
            try:
                return question()
            except DistError as error:
                return error

        def come(answer: Result | DistError) -> None:
            self._is_asking = False
            then(answer)

        def fail(error: Exception) -> None:
            self._is_asking = False
            self.top.trouble(self.crumb, error)

        # Beside what else the page asks: this one must come back, or it would never be asked again.
        ask_in_thread(self, work, come, lambda line: None, fail)


class View(Page):
    key: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    """One line for the help."""

    @property
    def crumb(self) -> str:
        return self.title


class CursorPage(Page):
    """A page that is one table or one sheet, its `body`."""

    takes_filter: ClassVar[bool] = True

    def __init__(self, body: CursorView, **more: Any) -> None:
        super().__init__(**more)
        self.snapshot = Snapshot()
        self.now = 0.0
        self.body = body

    def nothing(self) -> str:
        """Why there is nothing in it, in a sentence."""
        return "nothing is known yet"

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        self.body.filter, self.body.only_faults = only, only_faults
        self.body.again()

    def first_focus(self) -> Widget:
        return self.body


class TablePage(CursorPage):
    """A page that is one table. Subclasses say which rows there are, and what is in them."""

    columns: ClassVar[Sequence[TableColumn]]

    DEFAULT_CSS = """
    .over { height: auto; max-height: 9; padding: 0 1; display: none; }
    .over.has-words { display: block; }
    """

    def __init__(self, **more: Any) -> None:
        self.table = RowTable(
            self.columns, self.cells, is_fault=self.is_fault, sort_key=self.sort_key
        )
        super().__init__(self.table, **more)
        self._over = Static(markup=False, classes="over")
        self._words: Content | None = None

    def compose(self) -> ComposeResult:
        yield self._over
        yield self.table

    @abstractmethod
    def keys(self) -> Sequence[Hashable]:
        """The rows of `self.snapshot`, in their usual order."""

    @abstractmethod
    def cells(self, key: Any) -> Sequence[Cell]:
        """What is in a row; made for each row in sight."""

    def is_fault(self, key: Any) -> bool:
        """Whether the faults-only toggle leaves it."""
        return False

    def sort_key(self, key: Any, at: int) -> Any:
        """What a row is sorted by in a column: of one type in each column."""
        return self.cells(key)[at].text

    def over(self) -> Content | None:
        """A few lines over the table."""
        return None

    def draw(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot, self.now = snapshot, now
        self.table.nothing = self.nothing()
        self.table.show(self.keys())
        words = self.over()
        if words != self._words:
            self._words = words
            self._over.set_class(words is not None, "has-words")
            self._over.update(words or "")


class SheetPage(CursorPage):
    wraps: ClassVar[bool] = True

    def __init__(self, **more: Any) -> None:
        self.sheet = Sheet(wraps=self.wraps)
        super().__init__(self.sheet, **more)

    def compose(self) -> ComposeResult:
        yield self.sheet

    @abstractmethod
    def lines(self) -> Sequence[SheetLine]:
        """The lines about `self.snapshot`."""

    def draw(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot, self.now = snapshot, now
        self.sheet.show(self.lines(), self.nothing())

    def target(self) -> object:
        return self.sheet.cursor
