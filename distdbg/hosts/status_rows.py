"""The two kinds of rows of the tree: a rank and a host; and which of their changes are news. Pure.

A `RankStatus` says ages, a row says since when on the clock of whoever holds it. Of the words of an op
the number is kept apart, so that a million all_reduces are one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from distdbg.follow.status import RankStatus
from distdbg.hosts.columns import MAX_NUMBERS, MAX_TEXT, RowColumn, Schema, decode
from distdbg.record.rank_state import RankState

_STATES: Final = tuple(RankState)
_CODES: Final = {state: code for code, state in enumerate(_STATES)}
_NEWS: Final = frozenset(
    code
    for code, state in enumerate(_STATES)
    if state.is_stuck or state.is_over or state is RankState.DEBUGGED
)
_NUMBER: Final = re.compile(r"#(\d{1,18})(?!\d)")
_NO_NUMBER: Final = -1
_SEPARATOR: Final = "\x1f"
_MIB: Final = 1 << 20
_S: Final = 1_000_000_000


LOST: Final = 1
LEFT: Final = 2


class RankStatusRow(NamedTuple):
    """A rank; the fields in the order of RANK_SCHEMA."""

    node: int
    attempt: int
    pid: int
    state: int
    state_since_ns: int
    why: str
    op: str
    """With '#' where its number goes."""
    op_number: int
    site: str
    last_number: int
    progress_since_ns: int
    groups: str
    seqs: tuple[int, ...]
    cpu: int
    """Tenths of a second."""
    rss: int
    """MiB."""


class HostStatusRow(NamedTuple):
    """A host, which is a node of the tree; the fields in the order of HOST_SCHEMA."""

    host: str
    epoch: int
    """How often it has attached itself: of two that tell of a host, the later knows better."""
    is_lost: int
    """0: in touch; LOST: nobody hears it; LEFT: its agent has ended in good order."""
    since_ns: int
    """Since when it is so."""
    done: int
    """The last order that it has carried out."""


RANK_SCHEMA: Final[Schema] = (
    RowColumn.NUMBER,
    RowColumn.NUMBER,
    RowColumn.NUMBER,
    RowColumn.NUMBER,
    RowColumn.TIME,
    RowColumn.TEXT,
    RowColumn.TEXT,
    RowColumn.NUMBER,
    RowColumn.TEXT,
    RowColumn.NUMBER,
    RowColumn.TIME,
    RowColumn.TEXT,
    RowColumn.NUMBERS,
    RowColumn.NUMBER,
    RowColumn.NUMBER,
)
HOST_SCHEMA: Final[Schema] = (
    RowColumn.TEXT,
    RowColumn.NUMBER,
    RowColumn.NUMBER,
    RowColumn.TIME,
    RowColumn.NUMBER,
)


def is_in(row: RankStatusRow, state: RankState) -> bool:
    return row.state == _CODES[state]


def to_row(status: RankStatus, node: int, now_ns: int) -> RankStatusRow:
    """What goes up of a status that was made now. Long words are cut, CPU time and memory rounded."""
    found = _NUMBER.search(status.op)
    op = status.op
    if found is not None:
        op = f"{op[: found.start()]}#{op[found.end() :]}"
    seqs = status.seqs[:MAX_NUMBERS]
    names = _SEPARATOR.join(name for name, _ in seqs)
    if len(names) > MAX_TEXT:  # as many groups as have room
        names = names[:MAX_TEXT].rpartition(_SEPARATOR)[0]
        seqs = seqs[: names.count(_SEPARATOR) + 1 if names else 0]
    return RankStatusRow(
        node=node,
        attempt=status.attempt,
        pid=status.pid,
        state=_CODES[status.state],
        state_since_ns=now_ns - int(status.state_age_s * _S),
        why=_cut(status.why),
        op=_cut(op),
        op_number=_NO_NUMBER if found is None else int(found[1]),
        site=_cut(status.site),
        last_number=status.last_number,
        progress_since_ns=now_ns - int(status.progress_age_s * _S),
        groups=names,
        seqs=tuple(seq for _, seq in seqs),
        cpu=round(status.cpu_s * 10),
        rss=(status.rss_nbytes + _MIB - 1) // _MIB,
    )


def to_status(rank: int, row: RankStatusRow, host: str, now_ns: int) -> RankStatus:
    """The status now. ValueError when the row came from a version that knows other states."""
    if not 0 <= row.state < len(_STATES):
        raise ValueError(f"rank {rank} is in a state of another version: {row.state}")
    op = row.op if row.op_number == _NO_NUMBER else row.op.replace("#", f"#{row.op_number}", 1)
    return RankStatus(
        rank=rank,
        host=host,
        pid=row.pid,
        state=_STATES[row.state],
        attempt=row.attempt,
        state_age_s=max(0, now_ns - row.state_since_ns) / _S,
        progress_age_s=max(0, now_ns - row.progress_since_ns) / _S,
        last_number=row.last_number,
        seqs=tuple(zip(row.groups.split(_SEPARATOR), row.seqs, strict=False)) if row.seqs else (),
        op=op,
        site=row.site,
        why=row.why,
        cpu_s=row.cpu / 10,
        rss_nbytes=row.rss * _MIB,
    )


def is_news(new: RankStatusRow, old: RankStatusRow | None) -> bool:
    """Whether a person waits for it: a death, a rank that got stuck, sits in a debugger or moves again."""
    if old is None:
        return new.state in _NEWS
    return new.state != old.state and (new.state in _NEWS or old.state in _NEWS)


def is_slight(new: RankStatusRow, old: RankStatusRow) -> bool:
    """Whether nothing changed but times, CPU time and memory."""
    return (
        new.op_number == old.op_number
        and new.last_number == old.last_number
        and new.state == old.state
        and new.seqs == old.seqs
        and new.op == old.op
        and new.site == old.site
        and new.why == old.why
        and new.groups == old.groups
        and new[:3] == old[:3]
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def read_rows(
    schema: Schema, kind: Any, batch: object, bases: dict[int, Any], now_ns: int
) -> dict[int, Any]:
    """What `encode` made of rows of this kind. ValueError."""
    rows = decode(schema, batch, bases, now_ns)
    made: Iterable[Any] = map(kind._make, rows.values())
    return dict(zip(rows, made, strict=True))
