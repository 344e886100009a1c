"""An op as spans are made of it: what a record says, with the names of its run and wall time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from distdbg.export.metrics.bounds import group_label
from distdbg.export.otel import attributes as names
from distdbg.export.otel.matching import MessageNumbers
from distdbg.export.otel.model import Value
from distdbg.record.entries import KIND_LABELS, STATUS_ERRORS, Group, OpEntry, RecordHeader
from distdbg.record.format import Status
from distdbg.record.forms import Form
from distdbg.record.rank_list import read_ranks
from distdbg.record.recorded_frame import RecordedFrame

SEND: Final = KIND_LABELS.index("send")
RECV: Final = KIND_LABELS.index("recv")

_OTHER_ERROR: Final = "_OTHER"
#: The class of error by how an op ended, where the record has no words of it.
_ERRORS: Final = STATUS_ERRORS | {Status.SYSTEM: "OSError", Status.FAILED: _OTHER_ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRank:
    """The rank whose ops they are, the same for all ops of a record."""

    run: str
    start: int = 0
    """Which start of the ranks it is."""
    rank: int
    world_size: int = 0
    host: str = ""
    pid: int = 0
    python: str = ""
    version: str = ""
    base_ns: int = 0
    """What makes a wall time of a monotonic time of the record."""

    @classmethod
    def of(cls, header: RecordHeader, *, start: int = 0, base_ns: int | None = None) -> TracedRank:
        """Made of a record's header; `base_ns` None: by the clocks that are in it."""
        return cls(
            run=header.run,
            start=start,
            rank=header.rank,
            world_size=header.world_size,
            host=header.host,
            pid=header.pid,
            python=header.python_version,
            version=header.distdbg_version,
            base_ns=header.to_wall_ns(0) if base_ns is None else base_ns,
        )

    def attributes(self) -> dict[str, Value]:
        """The attributes of the resource whose spans they are."""
        return {
            names.INSTANCE: f"{self.run}/{self.rank}",
            names.HOST: self.host,
            names.PID: self.pid,
            names.PYTHON: self.python,
            names.DISTRO_VERSION: self.version,
            names.RUN: self.run,
            names.START: self.start,
            names.RANK: self.rank,
            names.WORLD_SIZE: self.world_size,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedGroup:
    """A group. `ranks` are those of the job, by their rank in the group."""

    name: str = ""
    label: str = ""
    """As metrics call it; many groups have one."""
    title: str = ""
    """As messages call it."""
    ranks: tuple[int, ...] = ()
    size: int = 0
    backend: str = ""

    @classmethod
    def of(cls, group: Group) -> TracedGroup:
        try:
            ranks = tuple(read_ranks(group.ranks))
        except ValueError:
            ranks = ()
        return cls(
            name=group.name,
            label=group_label(group.desc, group.name, group.size),
            title=group.desc or group.name,
            ranks=ranks,
            size=group.size,
            backend=group.backend,
        )

    def global_rank(self, rank: int | None) -> int | None:
        """The rank of the job that has this rank here."""
        return self.ranks[rank] if rank is not None and 0 <= rank < len(self.ranks) else None


@dataclass(frozen=True, slots=True)
class Context:
    """The span of the program's own that was active when it called the op."""

    trace_id: int
    span_id: int
    is_sampled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op. Times are wall nanoseconds."""

    number: int
    group: TracedGroup = field(default_factory=TracedGroup)
    seq: int
    kind: str
    form: Form | None = None
    is_message: bool = False
    is_aside: bool = False
    is_async: bool = False
    peer: int | None = None
    """The other rank of a message, as a rank of the job; a recv from any knows it once it has ended."""
    tag: int = 0
    message: int | None = None
    """Which of the messages of this sender, receiver and tag it is, from 1; None: not known."""
    comm: str = ""
    issued_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None
    status: int | None = None
    error: str = ""
    """JSON, as the record has it."""
    site: RecordedFrame | None = None
    thread: int = 0
    context: Context | None = None
    region: str = ""

    @property
    def function(self) -> str:
        return (self.form.name if self.form else "") or self.kind

    @property
    def error_type(self) -> str:
        """The class of what it raised; '' when it ended well, or has not."""
        if not self.status:
            return ""
        reported = self._error_facts().get("type")
        if isinstance(reported, str) and reported:
            return reported
        return _ERRORS.get(self.status, _OTHER_ERROR)

    @property
    def error_words(self) -> str:
        what = self._error_facts().get("what")
        return what if isinstance(what, str) else ""

    def _error_facts(self) -> dict[str, object]:
        try:
            facts = json.loads(self.error) if self.error else None
        except (ValueError, RecursionError):
            facts = None
        return facts if isinstance(facts, dict) else {}


def facts_of(
    op: OpEntry,
    rank: TracedRank,
    group: TracedGroup | None = None,
    *,
    message: int | None = None,
    context: Context | None = None,
    region: str = "",
) -> OpFacts:
    """The facts of an op that was looked up."""
    if group is None:
        group = TracedGroup.of(op.group) if op.group is not None else TracedGroup()
    base_ns = rank.base_ns
    peer = op.peer if op.peer is not None else op.source
    return OpFacts(
        number=op.number,
        group=group,
        seq=op.seq,
        kind=op.kind_label,
        form=op.form,
        is_message=op.is_message,
        is_aside=op.is_aside,
        is_async=op.is_async,
        peer=group.global_rank(peer) if op.is_message else None,
        tag=op.tag,
        message=message,
        comm=op.comm,
        issued_ns=op.issued_ns + base_ns,
        started_ns=None if op.started_ns is None else op.started_ns + base_ns,
        ended_ns=None if op.ended_ns is None else op.ended_ns + base_ns,
        status=op.status,
        error=op.error or "",
        site=op.site,
        thread=op.thread,
        context=context,
        region=region,
    )


def count_message(
    numbers: MessageNumbers,
    *,
    kind: int,
    group: int,
    peer: int,
    tag: int,
    seq: int,
    op: int,
    source: int | None,
) -> int | None:
    """Which message it is: to be called for each message once, in order. `peer` -1: from any."""
    if kind == SEND:
        return numbers.send(group, peer, tag, seq)
    if peer >= 0:
        return numbers.recv(group, peer, tag, seq)
    return numbers.recv_any(group, tag, seq, op, source)
