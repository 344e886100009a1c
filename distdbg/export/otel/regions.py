"""Spans of `span()` blocks, and marks: spans without a length.

A block that no other is around begins a trace of its own, by its rank and the number of its first entry;
blocks and marks within are its children. Ranks meet in ops, not in blocks, so each rank has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from distdbg.export.otel import attributes as names
from distdbg.export.otel.ids import Numbering, span_id
from distdbg.export.otel.model import SpanData, Value
from distdbg.export.otel.recorded_ops import Context, TracedRank
from distdbg.export.otel.sampling import Sampler
from distdbg.record import entries
from distdbg.record.entries import Event, MarkEntry, SpanBegin, SpanEnd

#: Blocks that one thread has open at once; more are passed over.
_MAX_DEEP: Final = 64
_MAX_THREADS: Final = 256


@dataclass(slots=True)
class _Open:
    begin: SpanBegin
    trace_id: int
    parent_id: int
    is_kept: bool
    is_sure: bool = True
    """Whether its end cannot have been missed."""


@dataclass(slots=True)
class RegionSpans:
    """Makes the spans of one rank's blocks and marks, told in order."""

    rank: TracedRank
    sampler: Sampler = field(default_factory=Sampler)
    _open: dict[int, list[_Open]] = field(default_factory=dict)
    _numbering: Numbering | None = None
    _count: int = 0
    unsampled: int = 0
    """Blocks and marks that were not kept."""

    def innermost(self, thread: int) -> str:
        """The name of the block that a thread is in; ''."""
        around = self._around(thread)
        return (around.begin.name or "") if around is not None else ""

    def doubt(self) -> None:
        """Events were missed: what is open may have ended."""
        for blocks in self._open.values():
            for block in blocks:
                block.is_sure = False

    def _around(self, thread: int) -> _Open | None:
        blocks = self._open.get(thread)
        return blocks[-1] if blocks and blocks[-1].is_sure else None

    def take(self, event: Event) -> Iterator[SpanData]:
        """What has ended with this event."""
        if isinstance(event, SpanBegin):
            self._begin(event)
        elif isinstance(event, SpanEnd):
            yield from self._end(event)
        elif isinstance(event, MarkEntry):
            yield from self._mark(event)

    def take_open(self, until_ns: int) -> Iterator[SpanData]:
        """The blocks that have not ended by then: children of theirs may be there already."""
        for blocks in self._open.values():
            for block in blocks:
                name = block.begin.name or "span"
                span = self._span(
                    block.begin, name, "region", block.trace_id, block.parent_id, until_ns
                )
                error = f"rank {self.rank.rank} never ended it"
                values = {**span.attributes, names.ERROR_TYPE: names.UNENDED}
                yield replace(span, attributes=values, error=error)

    def _begin(self, event: SpanBegin) -> None:
        if len(self._open) >= _MAX_THREADS and event.thread not in self._open:
            self._open.pop(next(iter(self._open)))
        blocks = self._open.setdefault(event.thread, [])
        if len(blocks) >= _MAX_DEEP:
            del blocks[0]  # its end was overwritten, as that of most of the others
        blocks.append(_Open(event, *self._place(event)))

    def _end(self, event: SpanEnd) -> Iterator[SpanData]:
        blocks = self._open.get(event.thread, [])
        at = next((n for n, one in enumerate(blocks) if one.begin.number == event.begin), None)
        if at is None:
            return
        block = blocks[at]
        del blocks[at:]
        if not blocks:
            self._open.pop(event.thread, None)
        if not block.is_kept:
            self.unsampled += 1
            return
        begin = block.begin
        yield self._span(
            begin, begin.name or "span", "region", block.trace_id, block.parent_id, event.issued_ns
        )

    def _mark(self, event: MarkEntry) -> Iterator[SpanData]:
        trace_id, parent_id, is_kept = self._place(event)
        if not is_kept:
            self.unsampled += 1
            return
        yield self._span(event, event.name or "mark", "mark", trace_id, parent_id, event.issued_ns)

    def _place(self, event: Event) -> tuple[int, int, bool]:
        """Trace, parent, and whether it is kept."""
        around = self._around(event.thread)
        if around is not None:
            parent_id = span_id(around.trace_id, self.rank.rank, "entry", around.begin.number)
            return around.trace_id, parent_id, around.is_kept
        if self._numbering is None:
            self._numbering = Numbering(self.rank.run, self.rank.start, "", "entry", self.rank.rank)
        self._count += 1
        trace_id = self._numbering.trace_id(event.number)
        return trace_id, 0, self.sampler.keeps(trace_id, self._count)

    def _span(
        self, event: Event, name: str, role: str, trace_id: int, parent_id: int, ended_ns: int
    ) -> SpanData:
        values: dict[str, Value] = {names.ROLE: role, names.RANK: self.rank.rank}
        if role == "region":
            values[names.REGION] = name
        if isinstance(event, MarkEntry) and event.value is not None:
            values[names.VALUE] = event.value
        if event.thread:
            values[names.THREAD] = event.thread
        if event.site is not None:
            values |= {
                names.FILE: event.site.file,
                names.LINE: event.site.line,
                names.CODE_FUNCTION: event.site.function,
            }
        return SpanData(
            name=name,
            trace_id=trace_id,
            span_id=span_id(trace_id, self.rank.rank, "entry", event.number),
            parent_id=parent_id,
            began_ns=event.issued_ns + self.rank.base_ns,
            ended_ns=max(ended_ns, event.issued_ns) + self.rank.base_ns,
            rank=self.rank.rank,
            attributes=values,
        )


class SpanContexts:
    """Those of one record, told in order."""

    def __init__(self) -> None:
        self._threads: dict[int, Context] = {}

    def take(self, event: entries.Event) -> None:
        """Take in an event, if it is one of these."""
        if not isinstance(event, entries.ContextEntry):
            return
        self._threads.pop(event.thread, None)
        if not event.trace_id:
            return
        if len(self._threads) >= _MAX_THREADS:
            del self._threads[next(iter(self._threads))]
        self._threads[event.thread] = Context(
            int(event.trace_id, 16), int(event.span_id, 16), event.is_sampled
        )

    def forget(self) -> None:
        """Events were missed: nobody knows where the threads are until they say it again."""
        self._threads.clear()

    @property
    def are_any(self) -> bool:
        return bool(self._threads)

    def of(self, thread: int) -> Context | None:
        """The span that a thread is in; None: it is in none."""
        return self._threads.get(thread)
