"""The rows of a rank, some thousand at a time, column by column.

    for part in parts(rank):
        part.columns["dtype"]        Distinct(codes, words): row i has words[codes[i]]
        part.columns["seq"]          an int64 array, ABSENT where there is none

Ops first, in the order of their numbers, then marks and spans by time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.ops import Ops
from distdbg.diagnose.session import RankLog, Session
from distdbg.export.tables.columns import ABSENT, COLUMNS, SPARSE, ColumnUnit, NoteRow, Rank, Value
from distdbg.record.entries import MarkEntry, SpanBegin, SpanEnd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from distdbg.export.tables.columns import ExportColumn, Numbers

#: What is made at a time; some 250 bytes a row.
_MAX_ROWS: Final = 1 << 16
_WHOLE: Final = (ColumnUnit.INTEGER, ColumnUnit.TIME, ColumnUnit.LENGTH)


@dataclass(frozen=True, slots=True)
class Distinct:
    """A column with few values."""

    codes: NDArray[np.intp]
    words: Sequence[Value]


@dataclass(frozen=True, slots=True)
class RowBatch:
    count: int
    columns: Mapping[str, Distinct | Numbers]
    """All of `COLUMNS`."""


def parts(rank: Rank) -> Iterator[RowBatch]:
    for start in range(0, len(rank.log.ops), _MAX_ROWS):
        yield _op_part(rank, slice(start, min(start + _MAX_ROWS, len(rank.log.ops))))
    rows = notes(rank.log)
    for start in range(0, len(rows), _MAX_ROWS):
        yield _note_part(rank, rows[start : start + _MAX_ROWS])


# --------------------------------------------------------------------------------------------- ops


def _op_part(rank: Rank, part: slice) -> RowBatch:
    count = part.stop - part.start
    keyed: dict[tuple[str, ...], tuple[NDArray[np.intp], NDArray[np.intp]]] = {}
    columns: dict[str, Distinct | Numbers] = {}
    for column in COLUMNS:
        if column.numbers is not None:
            columns[column.name] = column.numbers(rank, part)
        elif column.name in SPARSE:
            columns[column.name] = _sparse(SPARSE[column.name](rank, part), count)
        else:
            assert column.of_op is not None
            if column.keys not in keyed:
                keyed[column.keys] = _distinct(rank.log.ops, column.keys, part)
            firsts, codes = keyed[column.keys]
            words = [column.of_op(rank, part.start + int(at)) for at in firsts]
            columns[column.name] = Distinct(codes, words)
    return RowBatch(count, columns)


def _distinct(
    ops: Ops, keys: Sequence[str], part: slice
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first row with each combination of these columns, and which combination each row has."""
    import numpy as np

    codes = np.zeros(part.stop - part.start, np.int64)
    for key in keys:
        column = getattr(ops, key)
        if not column:  # optional: no op has one
            continue
        # Numbers from 0 on, so that two columns fit into one.
        _, own = np.unique(np.asarray(column[part]), return_inverse=True)
        codes = codes * (int(own.max()) + 1) + own
    _, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return firsts, inverse


def _sparse(values: Mapping[int, str], count: int) -> Distinct:
    import numpy as np

    codes = np.zeros(count, np.intp)
    words: list[Value] = [None]
    for at, text in values.items():
        codes[at] = len(words)
        words.append(text)
    return Distinct(codes, words)


# ------------------------------------------------------------------------------- marks, spans, findings


def notes(log: RankLog) -> list[NoteRow]:
    """What a rank has beside its ops, on the run's clock."""
    rows = []
    begun: dict[int, SpanBegin] = {}
    for event in log.notes:
        if isinstance(event, MarkEntry):
            value = event.value
            rows.append(
                NoteRow(
                    "mark",
                    rank=log.rank,
                    host=log.host or None,
                    number=event.number,
                    name=event.name,
                    value=None if value is None or math.isnan(value) else value,
                    issued=event.issued_ns + log.offset_ns,
                    site=str(event.site) if event.site else None,
                    thread=event.thread,
                )
            )
        elif isinstance(event, SpanBegin):
            begun[event.number] = event
        elif isinstance(event, SpanEnd):
            rows.append(_span(log, begun.pop(event.begin, None), event))
    rows += [_span(log, event, None) for event in begun.values()]
    rows.sort(key=lambda row: ABSENT if row.issued is None else row.issued)
    return rows


def _span(log: RankLog, begin: SpanBegin | None, end: SpanEnd | None) -> NoteRow:
    """One of both is there: the other may be overwritten, or not have come."""
    event, offset_ns = begin or end, log.offset_ns
    assert event is not None
    return NoteRow(
        "span",
        rank=log.rank,
        host=log.host or None,
        number=event.number if end is None else end.begin,
        name=event.name,
        issued=None if begin is None else begin.issued_ns + offset_ns,
        ended=None if end is None else end.issued_ns + offset_ns,
        duration=None if begin is None or end is None else end.issued_ns - begin.issued_ns,
        site=str(event.site) if event.site else None,
        thread=event.thread,
    )


def finding_part(run: str, session: Session, findings: Sequence[Finding]) -> RowBatch:
    """What the diagnosis says of a start."""
    rows = [
        NoteRow(
            "finding",
            rank=found.ranks[0] if len(found.ranks) == 1 else None,
            name=found.kind.value,
            issued=found.at_ns,
            group=found.group or None,
            seq=found.seq or None,
            status=found.severity.value,
            error=found.what,
        )
        for found in findings
    ]
    return _note_part(Rank(run, session, RankLog(rank=0)), rows)


def _note_part(rank: Rank, rows: Sequence[NoteRow]) -> RowBatch:
    return RowBatch(
        len(rows), {column.name: _note_column(rank, column, rows) for column in COLUMNS}
    )


def _note_column(rank: Rank, column: ExportColumn, rows: Sequence[NoteRow]) -> Distinct | Numbers:
    import numpy as np

    if column.of_op is not None and not column.keys and not hasattr(NoteRow, column.name):
        return Distinct(np.zeros(len(rows), np.intp), [column.of_op(rank, 0)])
    values = [getattr(row, column.name, None) for row in rows]
    if column.numbers is not None:
        assert column.unit in _WHOLE
        return np.array([ABSENT if value is None else value for value in values], np.int64)
    words = list(dict.fromkeys(values))
    places = {word: at for at, word in enumerate(words)}
    return Distinct(np.array([places[value] for value in values], np.intp), words)
