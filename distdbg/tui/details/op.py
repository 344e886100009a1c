"""One op on all ranks: when each called it, with which arguments, from which line; differences are marked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from distdbg.errors import DistError
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Tone, age, one_line, span
from distdbg.tui.table import RowTable, TableColumn
from distdbg.tui.targets import RankTarget
from distdbg.tui.view import TablePage
from distdbg.view.snapshot import Arrival, OpDetail, OpKey, Snapshot

_EVERY_S: Final = 1.0
_FINE: Final = frozenset(("ok", "in flight", ""))
_MAX_SAID: Final = 4


class OpPage(TablePage):
    """A row per rank that should call it; below, where the one under the cursor called it from."""

    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="rank", width=4, is_right=True),
        TableColumn(title="came", width=11, is_right=True),
        TableColumn(title="status", width=10),
        TableColumn(title="took", width=8, is_right=True, from_width=90),
        TableColumn(title="with", width=16, grows=True),
        TableColumn(title="", width=1),
        TableColumn(title="at", width=16, grows=True),
        TableColumn(title="", width=1),
        TableColumn(title="host", width=12, from_width=130),
    )
    DEFAULT_CSS = """
    .under {
        height: auto; max-height: 40%; padding: 0 1; border-top: solid $foreground-muted;
        display: none;
    }
    .under.has-words { display: block; }
    """

    def __init__(self, key: OpKey, name: str = "") -> None:
        super().__init__()
        self.key = key
        self._called = name
        self._detail: OpDetail | None = None
        self._rows: Mapping[int, Arrival] = {}
        self._first: float | None = None
        self._usual_form = ""
        self._usual_site = ""
        self._why = "asking ..."
        self._under = Static(markup=False, classes="under")

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self._under

    @property
    def crumb(self) -> str:
        return self._detail.name if self._detail else self._called or f"op #{self.key.seq}"

    def draw(self, snapshot: Snapshot, now: float) -> None:
        super().draw(snapshot, now)
        self._draw_under()
        if self._detail is None or self._is_open():
            self.keep_asking(lambda: self.feed.op(self.key), self._come, now, _EVERY_S)

    def _is_open(self) -> bool:
        """Whether more is to come: what has ended on all ranks stays as it is."""
        return any(not row.has_come or row.ended is None for row in self._rows.values())

    def _come(self, answer: OpDetail | DistError | None) -> None:
        if isinstance(answer, DistError):
            self._why = str(answer).split("\n")[0]
        elif answer is None:
            self._why = "this op is not known any more: the record keeps the newest ones"
        elif answer != self._detail:
            self._detail = answer
            self._rows = {row.rank: row for row in answer.arrivals}
            came = [row for row in answer.arrivals if row.has_come]
            self._first = min((row.issued for row in came if row.issued is not None), default=None)
            self._usual_form = _most([row.form for row in came if row.form])
            self._usual_site = _most([row.site for row in came if row.site])
        self.top.draw()

    def keys(self) -> Sequence[Hashable]:
        return list(self._rows)

    def target(self) -> object:
        cursor = self.table.cursor
        return RankTarget(cursor) if isinstance(cursor, int) else None

    def nothing(self) -> str:
        return self._why

    def cells(self, key: Any) -> Sequence[Cell]:
        row = self._rows[key]
        host = self.snapshot.ranks[key].host if key in self.snapshot.ranks else ""
        is_other_form = row.has_come and _differs(row.form, self._usual_form)
        is_other_site = row.has_come and _differs(row.site, self._usual_site)
        if not row.has_come:
            came = Cell("missing", Tone.FAULT)
        elif row.issued is None or self._first is None:
            came = Cell("came", Tone.MUTED)
        elif row.issued == self._first:
            came = Cell("first", Tone.MUTED)
        else:
            came = Cell(f"+{span(row.issued - self._first)}")
        status = Cell(one_line(row.status), Tone.MUTED if row.status in _FINE else Tone.FAULT)
        form = Cell(one_line(row.form), Tone.WARN if is_other_form else Tone.PLAIN)
        if row.issued is None:  # what is told of it is why nothing is known
            status, form = Cell(""), Cell(one_line(row.status), Tone.MUTED)
        return (
            Cell(str(row.rank)),
            came,
            status,
            Cell(self._took(row)),
            form,
            Cell("≠" if is_other_form else "", Tone.WARN),
            Cell(one_line(row.site), Tone.WARN if is_other_site else Tone.MUTED),
            Cell("≠" if is_other_site else "", Tone.WARN),
            Cell(one_line(host), Tone.MUTED),
        )

    def _took(self, row: Arrival) -> str:
        if row.issued is None:
            return ""
        return span(row.ended - row.issued) if row.ended is not None else age(self.now - row.issued)

    def is_fault(self, key: Any) -> bool:
        row = self._rows[key]
        return (
            not row.has_come
            or (row.issued is not None and row.status not in _FINE)
            or _differs(row.form, self._usual_form)
            or _differs(row.site, self._usual_site)
        )

    def sort_key(self, key: Any, at: int) -> Any:
        row = self._rows[key]
        match at:
            case 0:
                return row.rank
            case 1:
                # The last first, and before them those that have not come: those one looks for.
                return -(row.issued or 0.0) if row.has_come else float("-inf")
            case 3:
                return -((row.ended or self.now) - (row.issued or self.now))
        return self.cells(key)[at].text

    def over(self) -> Content | None:
        detail = self._detail
        if detail is None:
            return None
        came = [row for row in detail.arrivals if row.has_come]
        missing = [row.rank for row in detail.arrivals if not row.has_come]
        text = Content.styled(one_line(detail.name), "bold")
        text += f"   {len(came)} of {len(detail.arrivals)} ranks called it"
        if missing:
            text += Content.styled(f", missing {ranks_text(missing)}", "$text-error")
        timed = [row for row in came if row.issued is not None]
        if len(timed) > 1:
            first = min(timed, key=lambda row: row.issued or 0.0)
            last = max(timed, key=lambda row: row.issued or 0.0)
            late = (last.issued or 0.0) - (first.issued or 0.0)
            text += f"\nthe first was rank {first.rank}; the last, rank {last.rank}, "
            text += f"called it {span(late)} later"
        says = [said for said in detail.says if not said.endswith(" not called it")]
        for said in says[:_MAX_SAID]:
            text += Content.styled(f"\n{one_line(said)}", "$text-warning")
        if len(says) > _MAX_SAID:
            text += Content.styled(f"\n... {len(says) - _MAX_SAID} more", "$text-muted")
        return text

    def on_row_table_moved(self, message: RowTable.Moved) -> None:
        self._draw_under()

    def _draw_under(self) -> None:
        cursor = self.table.cursor
        row = self._rows.get(cursor) if isinstance(cursor, int) else None
        lines: list[Content] = []
        if row is not None:
            if row.error:
                lines += [Content.styled(text, "$text-error") for text in error_lines(row.error)]
            if row.stack:
                lines.append(Content.styled(f"rank {row.rank} called it at", "$text-muted"))
                lines += [Content(f"  {one_line(frame)}") for frame in row.stack]
        self._under.set_class(bool(lines), "has-words")
        self._under.update(Content("\n").join(lines))


def error_lines(text: str) -> list[str]:
    """The words of an error: as a record has them, JSON, or as somebody has said them."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        return [one_line(part) for part in text.split("\n")[:_MAX_SAID]]
    kind, what, details = facts.get("type"), facts.get("what"), facts.get("details")
    rest = details if isinstance(details, list) else []
    first = f"{kind}: {what}" if kind else str(what or text)
    return [one_line(first), *(f"  {one_line(str(one))}" for one in rest[: _MAX_SAID - 1])]


def _most(texts: Sequence[str]) -> str:
    """What most have; the first of two that are as many."""
    return Counter(texts).most_common(1)[0][0] if texts else ""


def _differs(text: str, usual: str) -> bool:
    return bool(text) and text != usual
