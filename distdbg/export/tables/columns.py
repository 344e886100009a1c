"""The columns of a table of a run: `COLUMNS`. Pure.

Most of what a row says is the same in many rows: the dtype of all ops of one form, the line of all ops of
one stack. Such a column says which columns of `Ops` decide on its value (`keys`) and is asked once for each
combination that is there (`of_op`). What differs from op to op is a column of numbers (`numbers`). A row
that is no op has the attribute of `Note` that is called as the column.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from distdbg.diagnose.bandwidth import size_of
from distdbg.diagnose.load.reported import to_found
from distdbg.diagnose.op_fields import label_of_status
from distdbg.diagnose.ops import NEVER, NONE
from distdbg.diagnose.session import GroupInfo, RankLog, Session
from distdbg.record.entries import label_of_kind
from distdbg.record.format import Flag
from distdbg.record.forms import Form, Item, Listing

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = "NDArray[np.int64]"

#: A number that is not there.
ABSENT: Final = NEVER

Value = str | int | float | bool | None


class ColumnUnit(Enum):
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "true or false"
    TIME = "time"
    LENGTH = "length of time"


@dataclass(frozen=True, slots=True)
class NoteRow:
    type: str
    rank: int | None = None
    host: str | None = None
    number: int | None = None
    name: str | None = None
    value: float | None = None
    issued: int | None = None
    ended: int | None = None
    duration: int | None = None
    site: str | None = None
    thread: int | None = None
    group: str | None = None
    seq: int | None = None
    status: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a run that is read: what its columns point into."""

    run: str
    session: Session
    log: RankLog

    def form(self, at: int) -> Form:
        return self.session.forms[self.log.ops.form[at]]

    def group(self, at: int) -> GroupInfo | None:
        index = self.log.ops.group[at]
        return None if index == NONE else self.session.groups[index]

    def kind(self, at: int) -> str:
        return label_of_kind(self.log.ops.kind[at]) or self.form(at).kind or "an op"

    def is_message(self, at: int) -> bool:
        return bool(self.log.ops.flags[at] & Flag.MESSAGE)


@dataclass(frozen=True, slots=True)
class ExportColumn:
    """One column. It has `of_op` or `numbers`."""

    name: str
    """Without a unit; a format adds what it needs."""
    unit: ColumnUnit
    about: str
    keys: tuple[str, ...] = ()
    """Names of columns of `Ops`; none: the value is that of the rank, of all its rows."""
    of_op: Callable[[Rank, int], Value] | None = None
    """By the index of any op that has the same keys."""
    numbers: Callable[[Rank, slice], Numbers] | None = None
    """ABSENT where there is none."""


def _column(name: str) -> Callable[[Rank, slice], Numbers]:
    """A column of `Ops` as it is."""

    def read(rank: Rank, part: slice) -> Numbers:
        import numpy as np

        return np.array(getattr(rank.log.ops, name)[part], np.int64)

    return read


def _time(name: str) -> Callable[[Rank, slice], Numbers]:
    """A time on the run's clock."""

    def read(rank: Rank, part: slice) -> Numbers:
        import numpy as np

        times = np.array(getattr(rank.log.ops, name)[part], np.int64)
        return np.where(times == NEVER, ABSENT, times + rank.log.offset_ns)

    return read


def _length(first: str, last: str) -> Callable[[Rank, slice], Numbers]:
    """From one time of an op to another."""

    def read(rank: Rank, part: slice) -> Numbers:
        import numpy as np

        begin = np.array(getattr(rank.log.ops, first)[part], np.int64)
        end = np.array(getattr(rank.log.ops, last)[part], np.int64)
        return np.where((begin == NEVER) | (end == NEVER), ABSENT, end - begin)

    return read


def _error(rank: Rank, at: int) -> str | None:
    text = rank.log.ops.errors.get(at)
    return None if text is None else to_found(text).what or None


def _errors(rank: Rank, part: slice) -> dict[int, str]:
    """By the place in the part."""
    errors = rank.log.ops.errors
    found = ((at, _error(rank, at)) for at in errors if part.start <= at < part.stop)
    return {at - part.start: text for at, text in found if text is not None}


def _group(rank: Rank, at: int) -> str | None:
    group = rank.group(at)
    return None if group is None else group.label


def _group_size(rank: Rank, at: int) -> int | None:
    group = rank.group(at)
    return None if group is None else len(group.ranks) or None


def _peer(rank: Rank, at: int) -> int | None:
    ops = rank.log.ops
    known = [r for r in (ops.source[at], ops.peer[at]) if r != NONE]
    return known[0] if known and rank.is_message(at) else None


def _site(rank: Rank, at: int) -> str | None:
    stack = rank.session.stacks[rank.log.ops.stack[at]]
    return str(stack[0]) if stack else None


def _nbytes(rank: Rank, at: int) -> int | None:
    if rank.log.ops.form[at] == 0:
        return None
    return size_of(rank.form(at), rank.kind(at), _group_size(rank, at) or 0)


def _comm(rank: Rank, at: int) -> str | None:
    comms = rank.log.ops.comm
    return (rank.session.comms[comms[at]] or None) if comms else None


def to_json(listing: Listing[Item]) -> str | None:
    """'[[4],[2,3]]'; of one that was cut, its head and how many follow: '[[4],"and 499 more"]'."""
    if not listing.count:
        return None
    items: list[object] = list(listing.items)
    if listing.hash:
        items.append(f"and {listing.count - len(items):,} more")
    return json.dumps(items, separators=(",", ":"))


_TEXT, _INTEGER, _NUMBER, _FLAG, _TIME, _LENGTH = ColumnUnit

COLUMNS: Final = (
    ExportColumn("run", _TEXT, "the name of the run", of_op=lambda r, at: r.run or None),
    ExportColumn("attempt", _INTEGER, "which start of the job, from 0: a launcher may start its ranks again",
        of_op=lambda r, at: r.session.attempt),
    ExportColumn("rank", _INTEGER, "who called", of_op=lambda r, at: r.log.rank),
    ExportColumn("host", _TEXT, "of that rank", of_op=lambda r, at: r.log.host or None),
    ExportColumn("type", _TEXT,
        "`op`, `mark`, `span`, or `finding`: of `distdbg analyze`, a row each, with the rank of the cause"
        " if it is one", of_op=lambda r, at: "op"),
    ExportColumn("number", _INTEGER, "as the rank counted its events, from 1", numbers=_column("number")),
    ExportColumn("group", _TEXT, "what messages call the process group", keys=("group",), of_op=_group),
    ExportColumn("group_size", _INTEGER, "how many ranks it has", keys=("group",), of_op=_group_size),
    ExportColumn("seq", _INTEGER,
        "the number of a collective in its group, the same on all its ranks; of a message among those to,"
        " or from, its peer", numbers=_column("seq")),
    ExportColumn("kind", _TEXT, "`all_reduce`, `send`, `new_group` ...",
        keys=("kind", "form"), of_op=Rank.kind),
    ExportColumn("name", _TEXT,
        "the function that was called, as `all_gather_into_tensor`; the name of a mark or span; the kind "
        "of a finding", keys=("kind", "form"), of_op=lambda r, at: r.form(at).name or r.kind(at)),
    ExportColumn("dtype", _TEXT, "`float32`", keys=("form",), of_op=lambda r, at: r.form(at).dtype or None),
    ExportColumn("op", _TEXT, "the reduce op, as `sum`",
        keys=("form",), of_op=lambda r, at: r.form(at).op.lower() or None),
    ExportColumn("root", _INTEGER, "the rank that sends to all, or receives from all",
        keys=("form",), of_op=lambda r, at: r.form(at).root),
    ExportColumn("inputs", _TEXT, "the shapes of what goes in, as JSON: `[[1024,16]]`",
        keys=("form",), of_op=lambda r, at: to_json(r.form(at).inputs)),
    ExportColumn("outputs", _TEXT, "of what comes out",
        keys=("form",), of_op=lambda r, at: to_json(r.form(at).outputs)),
    ExportColumn("nbytes", _INTEGER, "how much the op is about, as nccl-tests counts it",
        keys=("form", "kind", "group"), of_op=_nbytes),
    ExportColumn("peer", _INTEGER,
        "the other rank of a message; none while a recv from any rank has met nobody",
        keys=("peer", "source", "flags"), of_op=_peer),
    ExportColumn("tag", _INTEGER, "of a message",
        keys=("tag", "flags"), of_op=lambda r, at: r.log.ops.tag[at] if r.is_message(at) else None),
    ExportColumn("is_async", _FLAG, "whether it was begun with `async_op=True`",
        keys=("flags",), of_op=lambda r, at: bool(r.log.ops.flags[at] & Flag.ASYNC)),
    ExportColumn("status", _TEXT,
        "`ok`, `in_flight`, `timeout`, `peer_lost`, `mismatch` ...; of a finding its severity",
        keys=("status",), of_op=lambda r, at: label_of_status(r.log.ops.status[at])),
    ExportColumn("error", _TEXT, "what an op that failed said, or a finding", of_op=lambda r, at: None),
    ExportColumn("issued", _TIME, "when it was called; of a mark when it was set, of a span when it began",
        numbers=_time("issued_ns")),
    ExportColumn("started", _TIME, "when all ranks had come", numbers=_time("started_ns")),
    ExportColumn("ended", _TIME, "none while it is in flight, or where that word of the record is damaged",
        numbers=_time("ended_ns")),
    ExportColumn("duration", _LENGTH, "from issue to end", numbers=_length("issued_ns", "ended_ns")),
    ExportColumn("wait", _LENGTH, "from issue until all ranks had arrived: the part that late ranks cause",
        numbers=_length("issued_ns", "started_ns")),
    ExportColumn("transfer", _LENGTH, "from then to the end", numbers=_length("started_ns", "ended_ns")),
    ExportColumn("site", _TEXT, "where it was called: `train.py:88 (step)`", keys=("stack",), of_op=_site),
    ExportColumn("thread", _INTEGER, "the kernel's number of the thread that called",
        numbers=_column("thread")),
    ExportColumn("comm", _TEXT, "what the program called it (`record_comm`)", keys=("comm",), of_op=_comm),
    ExportColumn("value", _NUMBER, "the number that a mark was given", of_op=lambda r, at: None),
)  # fmt: skip

#: Columns of ops of which few have a value: by the place in the part.
SPARSE: Final = {"error": _errors}
