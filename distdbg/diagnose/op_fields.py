"""The fields of `distdbg query`: their names, types and help. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from distdbg.diagnose.bandwidth import size_of
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OpRef, Ops
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag, Status

Value = str | int | bool | None


class SessionView:
    """A session, and what is worked out once for all its ops."""

    __slots__ = ("began_ns", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.began_ns = began_ns(session)


class FieldUnit(Enum):
    """What the values of a field are."""

    TEXT = "text"
    COUNT = "number"
    RANK = "rank"
    NBYTES = "size"
    NS = "time"
    FLAG = "yes or no"


@dataclass(frozen=True, slots=True)
class OpField:
    """One name that an expression can have."""

    name: str
    unit: FieldUnit
    about: str
    read: Callable[[SessionView, OpRef], Value]
    """None: this op has no such thing, or it is not known."""


def label_of_status(status: int) -> str:
    """'ok', 'timeout' ...; 'in_flight'."""
    if status == IN_FLIGHT:
        return "in_flight"
    try:
        return Status(status).name.lower()
    except ValueError:
        return f"status_{status}"


def began_ns(session: Session) -> int:
    """When the first rank began, on the session's clock."""
    times = [log.began_ns + log.offset_ns for log in session.ranks.values() if log.began_ns]
    times += [
        log.ops.issued_ns[0] + log.offset_ns for log in session.ranks.values() if len(log.ops)
    ]
    return min(times, default=0)


def group_size(view: SessionView, op: OpRef) -> int:
    """How many ranks are in the op's group; 0 when that is not known."""
    index = _ops(view, op).group[op.at]
    return 0 if index == NONE else len(view.session.members(index))


def size(view: SessionView, op: OpRef) -> int:
    """How much the op is about, as nccl-tests counts it."""
    form = view.session.forms[_ops(view, op).form[op.at]]
    return size_of(form, view.session.kind_of(op), group_size(view, op))


def transfer(view: SessionView, op: OpRef) -> int | None:
    """Time from when all ranks had come to the end."""
    ops = _ops(view, op)
    return _between(ops.started_ns[op.at], ops.ended_ns[op.at])


def duration(view: SessionView, op: OpRef) -> int | None:
    """Time from issue to end."""
    ops = _ops(view, op)
    return _between(ops.issued_ns[op.at], ops.ended_ns[op.at])


def _ops(view: SessionView, op: OpRef) -> Ops:
    return view.session.ranks[op.rank].ops


def _between(first: int, last: int) -> int | None:
    return None if NEVER in (first, last) else last - first


def _wait(view: SessionView, op: OpRef) -> int | None:
    ops = _ops(view, op)
    return _between(ops.issued_ns[op.at], ops.started_ns[op.at])


def _rank_or_none(value: int) -> int | None:
    return None if value == NONE else value


def _group(view: SessionView, op: OpRef) -> str | None:
    group = view.session.group_of(op)
    return None if group is None else group.label


def _site(view: SessionView, op: OpRef) -> str | None:
    site = view.session.site_of(op)
    return None if site is None else str(site)


def _form(read: Callable[..., Value]) -> Callable[[SessionView, OpRef], Value]:
    return lambda view, op: read(view.session.forms[_ops(view, op).form[op.at]])


def _comm(view: SessionView, op: OpRef) -> str | None:
    comms = _ops(view, op).comm
    return (view.session.comms[comms[op.at]] or None) if comms else None


_FIELDS: Final = (
    OpField("rank", FieldUnit.RANK, "the rank that called it", lambda v, op: op.rank),
    OpField(
        "host",
        FieldUnit.TEXT,
        "the host of that rank",
        lambda v, op: v.session.ranks[op.rank].host or None,
    ),
    OpField("group", FieldUnit.TEXT, "the name of the group in messages", _group),
    OpField(
        "kind",
        FieldUnit.TEXT,
        "all_reduce, send, new_group ...",
        lambda v, op: v.session.kind_of(op),
    ),
    OpField(
        "name",
        FieldUnit.TEXT,
        "the function: all_gather_into_tensor",
        lambda v, op: v.session.forms[_ops(v, op).form[op.at]].name or v.session.kind_of(op),
    ),
    OpField(
        "seq", FieldUnit.COUNT, "its number in the group", lambda v, op: _ops(v, op).seq[op.at]
    ),
    OpField("dtype", FieldUnit.TEXT, "float32", _form(lambda form: form.dtype or None)),
    OpField(
        "op", FieldUnit.TEXT, "the reduce op: sum", _form(lambda form: form.op.lower() or None)
    ),
    OpField("root", FieldUnit.RANK, "a global rank", _form(lambda form: form.root)),
    OpField("nbytes", FieldUnit.NBYTES, "the bytes of the op", size),
    OpField(
        "peer",
        FieldUnit.RANK,
        "the other rank of a message, a global rank",
        lambda v, op: _rank_or_none(_ops(v, op).peer[op.at]),
    ),
    OpField(
        "tag",
        FieldUnit.COUNT,
        "the tag of a message",
        lambda v, op: _ops(v, op).tag[op.at] if _ops(v, op).flags[op.at] & Flag.MESSAGE else None,
    ),
    OpField(
        "status",
        FieldUnit.TEXT,
        "ok, in_flight, timeout, peer_lost, mismatch ...",
        lambda v, op: label_of_status(_ops(v, op).status[op.at]),
    ),
    OpField("duration", FieldUnit.NS, "from issue to end", duration),
    OpField("wait", FieldUnit.NS, "from issue until the last rank had arrived", _wait),
    OpField("transfer", FieldUnit.NS, "from the arrival of the last rank to the end", transfer),
    OpField(
        "issued",
        FieldUnit.NS,
        "time of issue, since the first rank began",
        lambda v, op: v.session.time_ns(op.rank, _ops(v, op).issued_ns[op.at]) - v.began_ns,
    ),
    OpField("site", FieldUnit.TEXT, "where it was called: train.py:88 (step)", _site),
    OpField(
        "thread", FieldUnit.COUNT, "the thread id (TID)", lambda v, op: _ops(v, op).thread[op.at]
    ),
    OpField(
        "async",
        FieldUnit.FLAG,
        "whether it was called with async_op=True",
        lambda v, op: bool(_ops(v, op).flags[op.at] & Flag.ASYNC),
    ),
    OpField("comm", FieldUnit.TEXT, "a name that the program gave it", _comm),
)

FIELDS: Final[Mapping[str, OpField]] = {field.name: field for field in _FIELDS}
