"""All spans of a record that was read as columns: for a file of them, of a run that may be over.

with RecordFile(path, salvage=True) as record:
    columns = record.columns()
rank = RankFacts.of(columns.header, start=0, base_ns=base_ns)
for span in spans_of(columns, rank): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdbg.export.otel.contexts import SpanContexts
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import OpSpans, SpanChoice
from distdbg.export.otel.recorded_ops import OpFacts, TracedRank, each_op
from distdbg.export.otel.regions import RegionSpans
from distdbg.export.otel.sampling import ALL, Sampler, is_remarkable
from distdbg.record.columns import Columns

#: Nothing is left out.
EVERYTHING = Sampler(ALL, False)


def spans_of(
    columns: Columns,
    rank: TracedRank,
    *,
    sampler: Sampler = EVERYTHING,
    slow_ns: int = 0,
    ended_ns: int = 0,
) -> Iterator[SpanData]:
    """Those of its ops, blocks and marks, by the numbers at which they began or ended.

    `ended_ns`: the end, as wall time, of what has not ended; 0: when the rank was last seen.
    """
    ended_ns = ended_ns or columns.state.heartbeat_ns + rank.base_ns
    spans = OpSpans(rank)
    regions = RegionSpans(rank, sampler)
    contexts = SpanContexts()
    events = sorted(columns.events, key=lambda event: event.number)
    at = 0
    for op in each_op(columns, rank):
        while at < len(events) and events[at].number < op.number:
            contexts.take(events[at])
            yield from regions.take(events[at])
            at += 1
        name, context = regions.innermost(op.thread), contexts.of(op.thread)
        if name or context is not None:
            op = replace(op, region=name, context=context)
        choice = choose(op, spans, sampler, slow_ns)
        if choice is not None:
            yield from spans.make(op, choice, ended_ns)
    yield from regions.take_all(events[at:])


def choose(op: OpFacts, spans: OpSpans, sampler: Sampler, slow_ns: int) -> SpanChoice | None:
    """Which spans of an op are made, looked at alone; None: none."""
    trace_id = spans.trace_id(op)
    caller = op.context is not None and sampler.keeps_child(
        op.context.trace_id, op.context.is_sampled
    )
    why = "head" if sampler.keeps(trace_id, op.message or op.seq) else ""
    if not why and op.ended_ns is not None:
        took_ns = op.ended_ns - op.issued_ns
        if is_remarkable(status=op.status, took_ns=took_ns, slow_ns=slow_ns):
            why = "failed" if op.status else "slow"
    if not why and op.kind in ("debugger", "breakpoint"):
        why = "debugger"
    if not why and not caller:
        return None
    return SpanChoice(op=bool(why), caller=caller, why=why or "head")
