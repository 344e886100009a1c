"""Spans of ops.

    collective, aside   root span "all_reduce #42 on dp"      sent by the agent of the group's first rank
                        `-- "all_reduce rank 3"               one per rank, by the agent of its host
    message             "send rank 0 to 3"                    the root; PRODUCER
                        `-- "recv rank 3 from 0"              its child, with a link to it; CONSUMER
    stop of a debugger  "debugger rank 3"                     alone

Where the program has a span of its own active, there is one more, "all_reduce", in the program's trace and
a child of that span; it and the rank's span in the trace of the op have links to each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from distdbg.export.otel import attributes as names
from distdbg.export.otel.ids import COLLECTIVE, Numbering, root_span_id, span_id
from distdbg.export.otel.model import SpanData, SpanEvent, SpanKind, SpanLink, Value
from distdbg.export.otel.recorded_ops import Context, OpFacts, TracedRank
from distdbg.record.format import Aside, Status
from distdbg.record.forms import Listing

_MAX_SHAPES: Final = 8
#: Lines and forms of which the attributes are kept.
_MAX_FIXED: Final = 1024
_DEBUGGER: Final = Aside.DEBUGGER.label
_BREAKPOINT: Final = Aside.BREAKPOINT.label
_LABELS: Final = {status.value: status.name.lower() for status in Status}


@dataclass(frozen=True, slots=True)
class SpanChoice:
    """Which of the spans of an op are made, and why."""

    op: bool = True
    """Those in the trace of the op."""
    caller: bool = False
    """The span in the trace of the program."""
    why: str = "head"


@dataclass(slots=True)
class OpSpans:
    """Makes the spans of one rank's ops. Numberings are kept: a run has few."""

    rank: TracedRank
    _numberings: dict[tuple[str | int, ...], Numbering] = field(default_factory=dict)
    _fixed: dict[tuple[object, ...], tuple[tuple[object, ...], dict[str, Value]]] = field(
        default_factory=dict
    )

    def trace_id(self, op: OpFacts) -> int:
        """The id of the trace of the op, which is the same on all ranks."""
        if op.is_message:
            return self.message_trace_id(
                op.group.name, op.kind, op.peer, op.tag, op.message, op.number
            )
        if op.is_aside:
            return self.aside_trace_id(op.group.name, op.kind, op.seq, op.number)
        return self.collective_trace_id(op.group.name, op.seq)

    def collective_trace_id(self, group: str, seq: int) -> int:
        """The trace id of a collective, by the name of its group and its number there."""
        return self._numbering(group, COLLECTIVE).trace_id(seq)

    def aside_trace_id(self, group: str, kind: str, seq: int, number: int) -> int:
        """The trace id of an op beside them; a stop of a debugger is the rank's own."""
        if kind == _DEBUGGER:
            return self._numbering(group, _DEBUGGER, self.rank.rank).trace_id(number)
        return self._numbering(group, kind).trace_id(seq)

    def message_trace_id(
        self, group: str, kind: str, peer: int | None, tag: int, message: int | None, number: int
    ) -> int:
        """The trace id of a message; one without a known number has a trace of the rank's own."""
        if message is None or peer is None:
            return self._numbering(group, kind, self.rank.rank).trace_id(number)
        ends = self.rank.rank, peer
        sender, receiver = ends if kind == "send" else reversed(ends)
        return self._numbering(group, "message", sender, receiver, tag).trace_id(message)

    def make_plain(
        self,
        like: OpFacts,
        trace_id: int,
        *,
        number: int,
        seq: int,
        issued_ns: int,
        started_ns: int,
        ended_ns: int,
    ) -> Iterator[SpanData]:
        """What `make` gives for a collective that the head keeps and that ended well, as `like` did.

        They differ in these numbers alone.
        """
        rank, root_id = self.rank.rank, root_span_id(trace_id)
        values = self._fixed_attributes(like).copy()
        values[names.SEQ] = seq
        values[names.NUMBER] = number
        values[names.STATUS] = _LABELS[Status.OK]
        values[names.LATE_PEER] = (started_ns - issued_ns) / 1e9
        values[names.TRANSFER] = max(ended_ns - started_ns, 0) / 1e9
        values[names.ROLE] = "rank"
        values[names.RANK] = rank
        values[names.KEPT] = "head"
        events = (SpanEvent(name="started", at_ns=started_ns),)
        if rank == _first_rank(like):
            yield SpanData(
                name=f"{like.kind} #{seq} on {like.group.title}",
                trace_id=trace_id,
                span_id=root_id,
                began_ns=issued_ns,
                ended_ns=ended_ns,
                rank=rank,
                attributes=values | {names.ROLE: "root"},
                events=events,
            )
        yield SpanData(
            name=f"{like.kind} rank {rank}",
            trace_id=trace_id,
            span_id=span_id(trace_id, rank),
            parent_id=root_id,
            began_ns=issued_ns,
            ended_ns=ended_ns,
            rank=rank,
            attributes=values,
            events=events,
        )

    def make(self, op: OpFacts, choice: SpanChoice, now_ns: int = 0) -> Iterator[SpanData]:
        """The spans that this rank's agent sends for the op. `now_ns`: the end of what has not ended."""
        trace_id = self.trace_id(op)
        own_id = span_id(trace_id, self.rank.rank)
        context = op.context if choice.caller else None
        caller_id = 0 if context is None else span_id(trace_id, self.rank.rank, "caller")
        if choice.op:
            caller = (
                ()
                if context is None
                else (SpanLink(trace_id=context.trace_id, span_id=caller_id, why="caller"),)
            )
            yield from self._in_trace(op, trace_id, own_id, caller, choice.why, now_ns)
        if context is not None:
            yield self._of_caller(op, context, trace_id, caller_id, choice, now_ns)

    def make_root(self, op: OpFacts, why: str, now_ns: int) -> SpanData:
        """The root of a collective that this rank was in, for a first rank that never came."""
        trace_id = self.trace_id(op)
        return self._span(
            op,
            now_ns,
            name=_root_name(op),
            trace_id=trace_id,
            span_id=root_span_id(trace_id),
            role="root",
            why=why,
        )

    # --------------------------------------------------------------------------- one span each

    def _in_trace(
        self,
        op: OpFacts,
        trace_id: int,
        own_id: int,
        links: tuple[SpanLink, ...],
        why: str,
        now_ns: int,
    ) -> Iterator[SpanData]:
        rank = self.rank.rank
        kind, name, parent_id = SpanKind.INTERNAL, f"{op.kind} rank {rank}", 0
        if op.is_message:
            way = "to" if op.kind == "send" else "from"
            name += f" {way} {'any' if op.peer is None else op.peer}"
            kind = SpanKind.PRODUCER if op.kind == "send" else SpanKind.CONSUMER
            if op.kind == "recv" and op.message is not None and op.peer is not None:
                parent_id = span_id(trace_id, op.peer)
                links = (SpanLink(trace_id=trace_id, span_id=parent_id, why="send"), *links)
        elif op.kind != _DEBUGGER:
            parent_id = root_span_id(trace_id)
            if rank == _first_rank(op):
                yield self._span(
                    op,
                    now_ns,
                    name=_root_name(op),
                    trace_id=trace_id,
                    span_id=parent_id,
                    role="root",
                    why=why,
                )
        yield self._span(
            op,
            now_ns,
            name=name,
            trace_id=trace_id,
            span_id=own_id,
            parent_id=parent_id,
            kind=kind,
            links=links,
            role="rank",
            why=why,
        )

    def _of_caller(
        self,
        op: OpFacts,
        context: Context,
        trace_id: int,
        caller_id: int,
        choice: SpanChoice,
        now_ns: int,
    ) -> SpanData:
        own = SpanLink(trace_id=trace_id, span_id=span_id(trace_id, self.rank.rank), why="op")
        return self._span(
            op,
            now_ns,
            name=op.kind,
            trace_id=context.trace_id,
            span_id=caller_id,
            parent_id=context.span_id,
            links=(own,) if choice.op else (),
            role="caller",
            why=choice.why,
        )

    def _span(
        self,
        op: OpFacts,
        now_ns: int,
        *,
        name: str,
        trace_id: int,
        span_id: int,
        parent_id: int = 0,
        kind: SpanKind = SpanKind.INTERNAL,
        links: tuple[SpanLink, ...] = (),
        role: str,
        why: str,
    ) -> SpanData:
        values = self._fixed_attributes(op).copy()
        _add_own(values, op)
        values[names.ROLE] = role
        values[names.RANK] = self.rank.rank
        values[names.KEPT] = why
        error: str | None = None
        if op.error_type:
            error = op.error_words or op.error_type
            values[names.ERROR_TYPE] = op.error_type
        elif op.ended_ns is None:
            error = f"rank {self.rank.rank} never ended it"
            values[names.ERROR_TYPE] = names.UNENDED
        events = []
        if op.started_ns is not None and op.kind != _DEBUGGER:
            events.append(SpanEvent(name="started", at_ns=op.started_ns))
        if op.error_type and op.ended_ns is not None:
            facts: dict[str, Value] = {"exception.type": op.error_type}
            if op.error_words:
                facts["exception.message"] = op.error_words
            events.append(SpanEvent(name="exception", at_ns=op.ended_ns, attributes=facts))
        ended_ns = op.ended_ns
        if ended_ns is None:
            ended_ns = max(now_ns, op.issued_ns, op.started_ns or 0)
        return SpanData(
            name=name,
            trace_id=trace_id,
            span_id=span_id,
            parent_id=parent_id,
            kind=kind,
            began_ns=op.issued_ns,
            ended_ns=ended_ns,
            rank=self.rank.rank,
            attributes=values,
            events=tuple(events),
            links=links,
            error=error,
        )

    def _fixed_attributes(self, op: OpFacts) -> dict[str, Value]:
        """What ops of one line and form have in common; not to be changed."""
        whose = op.group, op.form, op.site
        # By what they are, not by what is in them: to hash a form is slow. So they have to stay.
        key = (
            *map(id, whose),
            op.kind,
            op.comm,
            op.is_async,
            op.is_message,
            op.thread,
            op.region,
        )
        known = self._fixed.get(key)
        if known is None:
            if len(self._fixed) >= _MAX_FIXED:
                self._fixed.clear()
            known = self._fixed[key] = whose, fixed_attributes(op)
        return known[1]

    def _numbering(self, *key: str | int) -> Numbering:
        numbering = self._numberings.get(key)
        if numbering is None:
            group, *words = key
            numbering = Numbering(self.rank.run, self.rank.start, str(group), *words)
            self._numberings[key] = numbering
        return numbering


def _root_name(op: OpFacts) -> str:
    return f"{op.kind} #{op.seq} on {op.group.title}"


def _first_rank(op: OpFacts) -> int | None:
    """The rank whose agent sends the root span."""
    if op.kind == _BREAKPOINT and op.form is not None and op.form.members.items:
        return op.form.members.items[0][0]  # they stop, not the whole group
    return op.group.global_rank(0)


def fixed_attributes(op: OpFacts) -> dict[str, Value]:
    """What the table says of an op, but for its numbers, times and end, and what each of its spans has."""
    group, form = op.group, op.form
    values: dict[str, Value] = {names.KIND: op.kind, names.FUNCTION: op.function}
    values |= _present(
        {
            names.GROUP: group.label,
            names.GROUP_NAME: group.name,
            names.GROUP_SIZE: group.size,
            names.BACKEND: group.backend,
            names.COMM: op.comm,
            names.IS_ASYNC: op.is_async,
            names.THREAD: op.thread,
            names.REGION: op.region,
        }
    )
    if form is not None:
        values |= _present(
            {
                names.DTYPE: form.dtype,
                names.DEVICE: form.device,
                names.NBYTES: form.nbytes,
                names.INPUTS: _shapes(form.inputs),
                names.OUTPUTS: _shapes(form.outputs),
                names.REDUCE_OP: form.op,
            }
        )
        if form.root is not None:
            values[names.ROOT] = form.root
    if op.is_message:
        values[names.MESSAGING_SYSTEM] = "distdbg"
        values[names.MESSAGING_TYPE] = "send" if op.kind == "send" else "receive"
        values[names.MESSAGING_NAME] = op.kind
        values[names.MESSAGING_DESTINATION] = group.label
        if form is not None:
            values[names.MESSAGING_NBYTES] = form.nbytes
    if op.site is not None:
        values[names.FILE] = op.site.file
        values[names.LINE] = op.site.line
        values[names.CODE_FUNCTION] = op.site.function
    return values


def _add_own(values: dict[str, Value], op: OpFacts) -> None:
    """What the table says of this op alone."""
    values[names.SEQ] = op.seq
    values[names.NUMBER] = op.number
    values[names.STATUS] = _status_label(op.status)
    if op.started_ns is not None and op.ended_ns is not None and op.kind != _DEBUGGER:
        values[names.LATE_PEER] = (op.started_ns - op.issued_ns) / 1e9
        values[names.TRANSFER] = max(op.ended_ns - op.started_ns, 0) / 1e9
    if op.is_message:
        values[names.TAG] = op.tag
        if op.peer is not None:
            values[names.PEER] = op.peer


def _present(values: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value}


def _shapes(shapes: Listing[tuple[int, ...]]) -> tuple[str, ...]:
    return tuple(str(list(shape)) for shape in shapes.items[:_MAX_SHAPES])


def _status_label(status: int | None) -> str:
    if status is None:
        return "in flight"
    return _LABELS.get(status) or f"status {status}"
