"""One record: what is new in it, at a cost that does not depend on how fast the rank is.

    the newest part of the ring as columns of words; what was overwritten before that is missed, and counted
        all collectives of one group, ended, well and soon     only the kept numbers are looked up
        else                                                   each row is asked by its words
    ops that have not ended                                    asked again at each look, by number
    what is kept                                               looked up whole -> spans

An op becomes spans when it has ended, or when its rank is gone.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

from distdbg.export.otel.matching import MessageNumbers
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import OpSpans, SpanChoice
from distdbg.export.otel.recorded_ops import TracedGroup, TracedRank, count_message, facts_of
from distdbg.export.otel.regions import RegionSpans, SpanContexts
from distdbg.export.otel.sampling import ALL, SamplingDecision, is_remarkable
from distdbg.export.tracing.row import (
    Groups,
    Message,
    Row,
    SharedTraceState,
    Similarity,
    SimilarOps,
    similarity_of,
)
from distdbg.export.tracing.tail import Key
from distdbg.export.tracing.trace_events import SampledOp
from distdbg.follow.tail import TailedRecord
from distdbg.record.entries import Event, OpEntry, label_of_kind
from distdbg.record.format import Aside, EventType, Flag, pack
from distdbg.record.slices import ENDED_WELL, Slice

#: Rows that one look reads of one record.
MAX_ROWS: Final = 4096
#: Places behind the oldest that the writer may take while they are read.
_TAKEN: Final = 64
#: Ops in flight that are asked again, and events that are no ops, per look.
_MAX_OPEN: Final = 128
_MAX_NOTES: Final = 1024
_MAX_DONE: Final = 1024
#: Ops of one group are numbered in order, but for those of several threads.
_BEFORE: Final = 8
_Window = tuple[int, int, set[int]]
"""From which number, up to and without which, and the kept ones among them."""
_MAX_PASSED: Final = 256
_MAX_FAILED: Final = 64
#: A lost peer is asked after for a second or two, which are some looks, before the words are there.
_LOOKS_FOR_WORDS: Final = 6
_KEPT_ASIDES: Final = (Aside.BREAKPOINT, Aside.DEBUGGER)
_NO_COLLECTIVE: Final = Flag.MESSAGE | Flag.ASIDE
_PLAIN: Final = bytes(f for f in range(256) if not f & _NO_COLLECTIVE)


@dataclass
class Follower:
    """Follows one record. Not to be shared between threads."""

    record: TailedRecord
    rank: TracedRank
    shared: SharedTraceState
    last: int = 0
    """The number up to which everything was seen or missed."""
    _open: dict[int, Row] = field(default_factory=dict)
    _done: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    failed: OrderedDict[Key, tuple[TracedGroup, int, str]] = field(default_factory=OrderedDict)
    """The newest collectives that failed or were never ended: group, number, why they are kept."""
    _wordless: dict[int, tuple[Row, int]] = field(default_factory=dict)
    """What has failed and not said why, and how often it is still looked at."""
    _passed: OrderedDict[int, Row] = field(default_factory=OrderedDict)
    """By trace, the newest that were not kept and that no group numbers: messages, asides."""

    def __post_init__(self) -> None:
        self.spans = OpSpans(self.rank)
        self.groups = Groups(self.record)
        self._similar = SimilarOps()
        self._numbers = MessageNumbers()
        self._regions = RegionSpans(self.rank, self.shared.sampler)
        self._contexts = SpanContexts()
        self._slow = pack(self.shared.slow_ns) if self.shared.slow_ns else 2**64

    def emit(self, span: SpanData) -> None:
        """Have a span of this rank sent."""
        self.shared.made.spans.append((self.rank, span))

    # ------------------------------------------------------------------------------- one look

    def look(self, most_rows: int = MAX_ROWS) -> float:
        """Take in what is new, the newest rows of it; the part of the record that was new.

        RecordError when the record was cut short.
        """
        self._look_again()
        self._look_for_words()
        last = self.record.pulse().last_number
        if last <= self.last:
            return 0.0
        share = (last - self.last) / self.record.ring_count
        room = self.record.ring_count
        if last >= room:
            room = max(1, room - _TAKEN)
        part = self.record.slice(self.last, last, min(most_rows, room))
        if part.first > self.last + 1:
            self.shared.missed += part.first - self.last - 1
            self._contexts.forget()
            self._regions.doubt()
        self.last = part.first + len(part) - 1
        if not self._take_plain(part):
            self._take_each(part)
        return share

    def look_back(self, keys: list[Key]) -> None:
        """The tail keeps these from now on: those that were passed are looked for."""
        for name, seq in keys:
            if not name:
                passed = self._passed.pop(seq, None)
                if passed is not None:
                    passed.why = self.shared.tail.why(name, seq)
                    self._consider(passed)
                continue
            group = self.groups.number_of(name)
            if group is None or (name, seq) in self._done or self._is_by_head(name, seq):
                continue
            number = self.record.find_op(group, seq)
            if number is None or number > self.last:
                continue  # not called yet, or not come to
            row = Row(number, self.spans.collective_trace_id(name, seq))
            row.why, row.key = self.shared.tail.why(name, seq), (name, seq)
            if number not in self._open and number not in self._wordless:
                self._consider(row)

    def flush(self, now_ns: int, how: str = "") -> None:
        """The rank is gone: what has not ended never will. `now_ns`: wall time."""
        self._look_again()
        self._look_for_words(is_last=True)
        for number, row in list(self._open.items()):
            event = self.record.event(number)
            if isinstance(event, OpEntry):
                row.why = row.why or "failed"
                self._make(event, row, now_ns, how)
        self._open.clear()

    # ------------------------------------------------------------------------------- rows

    def _take_plain(self, part: Slice) -> bool:
        """If nothing but collectives of one group is there that ended well and soon: the kept ones."""
        count = len(part)
        if not count:
            return True
        if (
            self._contexts.are_any
            or part.types.count(EventType.OP) != count
            or part.all_flags.translate(None, _PLAIN)
        ):
            return False
        groups, seqs = part.groups, part.seqs
        first = seqs[0]
        if (
            groups.count(groups[0]) != count
            or seqs[-1] - first != count - 1
            or part.outcomes[:-1].count(ENDED_WELL) != count - 1
            or part.ended[:-1].count(0)
            or max(part.ended) >= self._slow
            or seqs.tolist() != list(range(first, first + count))
        ):
            return False
        name, until = self.groups[groups[0]].name, first + count - 1
        tail = self.shared.tail.of(name)
        kept = {n for n in tail if first <= n < until}
        kept.update(self.shared.head.kept(name, first, until))
        for seq in sorted(kept):
            row = Row(part.first + seq - first, self.spans.collective_trace_id(name, seq))
            row.why, row.key = self._why(name, seq), (name, seq)
            self._consider(row, part, row.number - part.first)
        self.shared.unsampled += count - 1 - len(kept)
        self._take_row(part, count - 1)
        return True

    def _take_each(self, part: Slice) -> None:
        notes = unsampled = 0
        windows: dict[int, _Window] = {}
        slow, has_contexts = self._slow, self._contexts.are_any
        columns = zip(
            part.types,
            part.all_flags,
            part.outcomes,
            part.ended,
            part.groups,
            part.seqs,
            strict=True,
        )
        for at, (kind, flags, outcome, ended, group, seq) in enumerate(columns):
            if kind != EventType.OP:
                notes += 1
                event = self.record.event(part.first + at) if notes <= _MAX_NOTES else None
                if event is None:
                    # It may have been the end of a block, or of a span of the program's.
                    self.shared.missed += 1
                    self._contexts.forget()
                    self._regions.doubt()
                else:
                    self._take_note(event)
                has_contexts = self._contexts.are_any
                continue
            if (
                outcome == ENDED_WELL
                and 0 < ended < slow
                and not flags & _NO_COLLECTIVE
                and not has_contexts
            ):
                window = windows.get(group)
                if window is None or not window[0] <= seq < window[1]:
                    window = windows[group] = self._window(group, seq, len(part))
                if seq not in window[2]:
                    unsampled += 1  # most of them: nothing of it is needed
                    continue
            self._take_row(part, at)
        self.shared.unsampled += unsampled

    def _window(self, group: int, seq: int, count: int) -> _Window:
        """The collectives of a group about a number that are kept: as a rule all that a slice has of it."""
        name = self.groups[group].name
        low, high = max(1, seq - _BEFORE), seq + count + _BEFORE
        return low, high, {*self.shared.head.kept(name, low, high), *self.shared.tail.of(name)}

    def _take_row(self, part: Slice, at: int) -> None:
        flags, seq = part.flags(at), part.seqs[at]
        group = self.groups[part.groups[at]]
        if flags & Flag.MESSAGE:
            row = self._message_row(part, at, group)
        elif flags & Flag.ASIDE:
            kind, number = label_of_kind(part.kind(at)), part.first + at
            row = Row(number, self.spans.aside_trace_id(group.name, kind, seq, number))
            if part.kind(at) in _KEPT_ASIDES:
                row.why = "debugger"
            else:
                self._place(row, seq, self._is_wide(group))
        else:
            row = Row(part.first + at, self.spans.collective_trace_id(group.name, seq))
            row.why = self._why(group.name, seq)
            row.key, row.is_wide = (group.name, seq), self._is_wide(group)
        row.context = self._contexts.of(part.thread(at))
        row.region = self._regions.innermost(part.thread(at))
        ended, outcome = part.ended[at], part.outcomes[at] >> 16
        if not ended:
            self._wait_for(row)
            return
        self._judge(row, outcome & 0xFF, ended >> 16)
        self._consider(row, part, at)

    def _message_row(self, part: Slice, at: int, group: TracedGroup) -> Row:
        number, peer, tag = part.first + at, part.peer(at), part.tag(at)
        source = (part.outcomes[at] >> 24) - 1 if part.ended[at] else -1
        message = count_message(
            self._numbers,
            kind=part.kind(at),
            group=part.groups[at],
            peer=peer,
            tag=tag,
            seq=part.seqs[at],
            op=number,
            source=source if source >= 0 else None,
        )
        row = Row(number, 0, message=message)
        row.sent = Message(
            group=group,
            number=part.groups[at],
            kind=label_of_kind(part.kind(at)),
            peer=peer,
            tag=tag,
            seq=part.seqs[at],
        )
        self._place_message(row, source)
        return row

    def _place_message(self, row: Row, source: int) -> None:
        """Its trace and whether the head keeps it, once it is known whom it is from."""
        found = row.sent
        assert found is not None
        rank = found.group.global_rank(found.peer if found.peer >= 0 else source)
        row.trace_id = self.spans.message_trace_id(
            found.group.name, found.kind, rank, found.tag, row.message, row.number
        )
        is_wide = rank not in self.shared.ranks
        self._place(row, row.message or found.seq, is_wide, is_shared=row.message is not None)

    def _place(self, row: Row, seq: int, is_wide: bool, *, is_shared: bool = True) -> None:
        """Whether the head or the tail keeps what no group numbers; `is_shared`: others have its trace."""
        if is_shared:
            row.key, row.is_wide = ("", row.trace_id), is_wide
        if self.shared.sampler.keeps(row.trace_id, seq):
            row.why = "head"
        elif row.key is not None:
            row.why = self.shared.tail.why(*row.key)

    def _is_wide(self, group: TracedGroup) -> bool:
        return not self.shared.ranks.issuperset(group.ranks)

    def _judge(self, row: Row, status: int, took_ns: int) -> None:
        """Whether the tail keeps what has ended and the head does not."""
        if row.why or not is_remarkable(
            status=status, took_ns=took_ns, slow_ns=self.shared.slow_ns
        ):
            return
        row.why = "failed" if status else "slow"
        if row.key is not None:
            self.shared.tail.add(*row.key, row.why, is_wide=row.is_wide)

    def _take_note(self, event: Event) -> None:
        self._contexts.take(event)
        for span in self._regions.take(event):
            shared = self.shared
            if (
                shared.pay(shared.budget, span.trace_id, shared.sampler.bound or ALL)
                is SamplingDecision.TAKEN
            ):
                self.emit(span)

    def _wait_for(self, row: Row) -> None:
        if len(self._open) >= _MAX_OPEN:
            self._open.pop(next(iter(self._open)))
            self.shared.missed += 1
        self._open[row.number] = row

    def _look_again(self) -> None:
        for number, row in list(self._open.items()):
            op = self.record.recent_one(number)
            if op is None:
                del self._open[number]
                self.shared.missed += 1
                continue
            if op.ended_ns is None:
                continue
            del self._open[number]
            if row.sent is not None and row.sent.peer < 0:
                self._end_any(row)
            if row.key is not None and not row.why:
                row.why = self.shared.tail.why(*row.key)
            self._judge(row, op.status or 0, op.ended_ns - op.issued_ns)
            self._consider(row)

    def _look_for_words(self, *, is_last: bool = False) -> None:
        """What has failed gets its words a moment after its end, if somebody waits for it."""
        for number, (row, looks) in list(self._wordless.items()):
            event = self.record.event(number)
            if not isinstance(event, OpEntry):
                del self._wordless[number]
                self.shared.missed += 1
            elif event.error or is_last or looks <= 0:
                del self._wordless[number]
                self._make(event, row)
            else:
                self._wordless[number] = row, looks - 1

    def _end_any(self, row: Row) -> None:
        event, found = self.record.event(row.number), row.sent
        assert found is not None
        source = event.source if isinstance(event, OpEntry) else None
        row.message = self._numbers.end_any(found.number, found.tag, row.number, source)
        self._place_message(row, -1 if source is None else source)

    # ------------------------------------------------------------------------------- what is kept

    def _why(self, name: str, seq: int) -> str:
        return "head" if self._is_by_head(name, seq) else self.shared.tail.why(name, seq)

    def _is_by_head(self, name: str, seq: int) -> bool:
        return self.shared.head.keeps(name, seq)

    def _consider(self, row: Row, part: Slice | None = None, at: int = 0) -> None:
        """Look an op up if it is kept and there is room for it. `part`: where it was just found."""
        shared = self.shared
        if not row.why and row.key is not None and not row.key[0]:
            self._passed[row.trace_id] = row
            if len(self._passed) > _MAX_PASSED:
                self._passed.popitem(last=False)
        if not row.why and row.context is None:
            shared.unsampled += 1
            return
        is_by_head = row.why in ("head", "")
        bound = shared.sampler.bound if is_by_head and shared.sampler.bound else ALL
        if row.context and not row.why:
            bound = ALL
        budget = shared.budget if is_by_head else shared.tail_budget
        verdict = shared.pay(budget, row.trace_id, bound, 2 if row.sent else len(shared.ranks) + 1)
        if verdict is SamplingDecision.LEFT_OUT and row.key and row.key[0] and row.why == "head":
            shared.head.leave_out(*row.key)
        if verdict is not SamplingDecision.TAKEN:
            return
        began_ns = time.thread_time_ns()
        similarity = similarity_of(row, part, at)
        if part is None or not similarity or not self._make_plain(part, at, row, similarity):
            event = self.record.event(row.number)
            if not isinstance(event, OpEntry):
                shared.missed += 1
            elif event.ended_ns is None:
                self._wait_for(row)
            elif event.status and not event.error and len(self._wordless) < _MAX_OPEN:
                self._wordless[row.number] = row, _LOOKS_FOR_WORDS
            else:
                self._make(event, row, similarity=similarity)
        shared.made_ns += time.thread_time_ns() - began_ns

    def _make_plain(self, part: Slice, at: int, row: Row, similarity: Similarity) -> bool:
        """Make its spans by those of a similar op, without looking it up; whether that can be done."""
        similar = self._similar.of(similarity)
        op = part.op(at) if similar is not None else None
        if similar is None or op is None or op.started_ns is None or op.ended_ns is None:
            return False
        shared, base_ns = self.shared, self.rank.base_ns
        ended_ns = op.ended_ns + base_ns
        for span in self.spans.make_plain(
            similar,
            row.trace_id,
            number=op.number,
            seq=op.seq,
            issued_ns=op.issued_ns + base_ns,
            started_ns=op.started_ns + base_ns,
            ended_ns=ended_ns,
        ):
            self.emit(span)
        took_ns = op.ended_ns - op.issued_ns
        shared.made.sampled.append(
            SampledOp(similar.kind, similar.group.label, took_ns, row.trace_id, ended_ns)
        )
        return True

    def _make(
        self,
        event: OpEntry,
        row: Row,
        now_ns: int = 0,
        how: str = "",
        similarity: Similarity | None = None,
    ) -> None:
        shared = self.shared
        group = self.groups[event.group_number]
        op = facts_of(
            event,
            self.rank,
            group,
            message=row.message,
            context=row.context,
            region=row.region,
        )
        # Nothing is known to be similar to one whose form was overwritten.
        if similarity is not None and op.form is not None and op.status == 0:
            self._similar.keep(similarity, op)
        caller = op.context is not None and shared.sampler.keeps_child(
            op.context.trace_id, op.context.is_sampled
        )
        if not row.why and not caller:
            shared.unsampled += 1
            return
        if row.key is not None and row.why not in ("head", ""):
            self._done[row.key] = None
            if len(self._done) > _MAX_DONE:
                self._done.popitem(last=False)
        if row.key is not None and row.why and (op.status or op.ended_ns is None):
            self.failed[row.key] = group, op.seq, row.why
            while len(self.failed) > _MAX_FAILED:
                self.failed.popitem(last=False)
        choice = SpanChoice(op=bool(row.why), caller=caller, why=row.why or "head")
        for span in self.spans.make(op, choice, now_ns):
            if how and op.ended_ns is None:
                span = replace(span, error=f"rank {self.rank.rank} {how}")
            self.emit(span)
        if op.ended_ns is not None and row.why:
            took_ns = op.ended_ns - op.issued_ns
            shared.made.sampled.append(
                SampledOp(op.kind, group.label, took_ns, row.trace_id, op.ended_ns)
            )
