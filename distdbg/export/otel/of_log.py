"""The spans of a rank that was read for an export: all of its ops, blocks and marks.

    spans = LogSpans(session, log, rank)
    for span in spans.each(): ...           as values
    for text in spans.each_text(to_json):   as text, of some spans each, much faster

The ids are those of the spans that an agent has sent of the same run, or would have. What the program's own
sampler kept has a span in its trace as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, repeat
from typing import Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE
from distdbg.diagnose.session import GroupInfo, RankLog, Session
from distdbg.export.metrics.bounds import group_label
from distdbg.export.otel.ids import COLLECTIVE, Numbering
from distdbg.export.otel.matching import MessageNumbers
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import OpSpans, SpanChoice
from distdbg.export.otel.recorded_ops import (
    Context,
    OpFacts,
    TracedGroup,
    TracedRank,
    count_message,
)
from distdbg.export.otel.regions import RegionSpans, SpanContexts
from distdbg.export.otel.sampling import ALL, Sampler
from distdbg.export.otel.templates import (
    Template,
    ToJson,
    context_values,
    escape,
    make_template,
    values_of,
)
from distdbg.record.entries import label_of_kind
from distdbg.record.format import Flag

_EVERYTHING: Final = Sampler(ALL, False)
_ALL: Final = SpanChoice(why="exported", caller=True)
_BESIDE: Final = int(Flag.MESSAGE | Flag.ASIDE)
_CHUNK: Final = 4096


def rank_facts(run: str, session: Session, log: RankLog) -> TracedRank:
    """The rank whose spans they are."""
    return TracedRank(
        run=run,
        start=session.attempt,
        rank=log.rank,
        world_size=session.world_size,
        host=log.host,
        pid=log.pid,
        base_ns=log.offset_ns,
    )


class LogSpans:
    """Iterated once."""

    def __init__(self, session: Session, log: RankLog, rank: TracedRank) -> None:
        self._session, self._log = session, log
        latest = max(log.heartbeat_ns, log.exit_ns, max(log.ops.issued_ns, default=NEVER))
        #: When what has not ended ends.
        self._last_ns = latest + log.offset_ns
        self._spans, self._regions = OpSpans(rank), RegionSpans(rank, _EVERYTHING)
        # Where events are missing, nobody knows how long a thread was in one.
        contexts = () if log.lost.get("gaps") else log.contexts
        self._notes = sorted((*log.notes, *contexts), key=lambda note: note.number)
        self._contexts = SpanContexts()
        self._noted = 0
        self._groups: dict[int, TracedGroup] = {NONE: TracedGroup()}
        self._numberings: dict[int, Numbering] = {}
        self._messages = MessageNumbers()
        #: For ops outside of blocks, and for those within one; the same for ops within a span
        #: of the program's own.
        self._templates: tuple[dict[tuple[int, ...], Template | None], ...] = ({}, {}, {}, {})

    def each(self) -> Iterator[SpanData]:
        """Each span, by the numbers at which ops were issued."""
        for at, number in enumerate(self._log.ops.number):
            yield from self._notes_before(number)
            yield from self._make(at)
        yield from self._notes_before(None)
        yield from self._unended()

    def each_text(self, to_json: ToJson) -> Iterator[str]:
        """The same as text; `to_json` of some spans is that of each, with something between them."""
        ops = self._log.ops
        for low in range(0, len(ops), _CHUNK):
            yield from self._some_text(low, min(low + _CHUNK, len(ops)), to_json)
        if rest := [*self._notes_before(None), *self._unended()]:
            yield to_json(rest)

    def _some_text(self, low: int, high: int, to_json: ToJson) -> Iterator[str]:
        ops, notes = self._log.ops, self._notes
        # What decides on all but the numbers of an op.
        columns = ops.flags, ops.group, ops.form, ops.stack, ops.thread, ops.kind, ops.comm
        keys = zip(*(column[low:high] or repeat(0) for column in columns), strict=False)
        numbers = ops.number[low:high]
        known = words = ""
        rows = zip(count(low), numbers, keys, *self._values(low, high), strict=False)
        for at, number, key, is_plain, values in rows:
            if self._noted < len(notes) and notes[self._noted].number <= number:
                made = list(self._notes_before(number))
                if made:
                    yield to_json(made)
            if not is_plain:
                yield to_json(self._make(at))
                continue
            region, context = self._regions.innermost(key[4]), self._context(key[4])
            templates = self._templates[2 * (context is not None) + bool(region)]
            if region or context:
                if region != known:
                    known, words = region, escape(region)
                values = (*values, words, *context_values(context))
            if key not in templates:
                templates[key] = make_template(self._op(at), self._spans, _ALL, to_json)
            template = templates[key]
            yield to_json(self._make(at)) if template is None else template.fill(values)

    def _values(self, low: int, high: int) -> tuple[list[bool], Iterator[tuple[str, ...]]]:
        """Whether each op may have a template, and what is filled into it."""
        import numpy as np

        ops, offset = self._log.ops, self._log.offset_ns
        issued, started, ended = (
            np.array(times[low:high], np.int64)
            for times in (ops.issued_ns, ops.started_ns, ops.ended_ns)
        )
        flags, status = np.array(ops.flags[low:high]), np.array(ops.status[low:high])
        # What is NEVER is before all else.
        is_plain = (issued > NEVER) & (issued <= started) & (started <= ended)
        is_plain &= ((flags & _BESIDE) == 0) & (status == 0)
        groups, seqs = ops.group[low:high], ops.seq[low:high]
        numberings = {group: self._numbering(group) for group in set(groups)}
        digests = [numberings[group].digest(seq) for group, seq in zip(groups, seqs, strict=True)]
        return is_plain.tolist(), values_of(
            digests,
            self._log.rank,
            seqs,
            ops.number[low:high],
            issued + offset,
            started + offset,
            ended + offset,
        )

    def _numbering(self, group: int) -> Numbering:
        if group not in self._numberings:
            rank = self._spans.rank
            self._numberings[group] = Numbering(
                rank.run, rank.start, self._group(group).name, COLLECTIVE
            )
        return self._numberings[group]

    def _make(self, at: int) -> Iterator[SpanData]:
        return self._spans.make(self._op(at), _ALL, self._last_ns)

    def _notes_before(self, number: int | None) -> Iterator[SpanData]:
        while self._noted < len(self._notes):
            note = self._notes[self._noted]
            if number is not None and note.number > number:
                return
            self._noted += 1
            self._contexts.take(note)
            yield from self._regions.take(note)

    def _unended(self) -> Iterator[SpanData]:
        return self._regions.take_open(self._last_ns - self._log.offset_ns)

    def _op(self, at: int) -> OpFacts:
        """The facts of an op; to be called for each message once, in order."""
        session, ops, offset = self._session, self._log.ops, self._log.offset_ns
        group, kind, flags = ops.group[at], ops.kind[at], ops.flags[at]
        form = session.forms[ops.form[at]] if ops.form[at] else None
        stack = session.stacks[ops.stack[at]]
        is_message = bool(flags & Flag.MESSAGE)
        source, peer, message = ops.source[at], None, None
        if is_message:
            peer = next((r for r in (source, ops.peer[at]) if r != NONE), None)
            message = count_message(
                self._messages,
                kind=kind,
                group=group,
                peer=ops.peer[at],
                tag=ops.tag[at],
                seq=ops.seq[at],
                op=ops.number[at],
                source=None if source == NONE else source,
            )
        started_ns, ended_ns = ops.started_ns[at], ops.ended_ns[at]
        return OpFacts(
            number=ops.number[at],
            group=self._group(group),
            seq=ops.seq[at],
            kind=label_of_kind(kind) or (form.kind if form else f"kind {kind}"),
            form=form,
            is_message=is_message,
            is_aside=bool(flags & Flag.ASIDE),
            is_async=bool(flags & Flag.ASYNC),
            peer=peer,
            tag=ops.tag[at],
            message=message,
            comm=session.comms[ops.comm[at]] if ops.comm else "",
            issued_ns=ops.issued_ns[at] + offset,
            started_ns=None if started_ns == NEVER else started_ns + offset,
            ended_ns=None if ended_ns == NEVER else ended_ns + offset,
            status=None if ops.status[at] == IN_FLIGHT else ops.status[at],
            error=ops.errors.get(at, ""),
            site=stack[0] if stack else None,
            thread=ops.thread[at],
            region=self._regions.innermost(ops.thread[at]),
            context=self._context(ops.thread[at]),
        )

    def _context(self, thread: int) -> Context | None:
        """The program's span that the thread is in, if anybody has it."""
        context = self._contexts.of(thread)
        return context if context is not None and context.is_sampled else None

    def _group(self, index: int) -> TracedGroup:
        if index not in self._groups:
            self._groups[index] = _group_facts(self._session.groups[index])
        return self._groups[index]


def _group_facts(group: GroupInfo) -> TracedGroup:
    return TracedGroup(
        name=group.name,
        label=group_label(group.label, group.name, len(group.ranks)),
        title=group.label,
        ranks=group.ranks,
        size=len(group.ranks),
        backend=group.backend,
    )
