"""The spans of a rank that was read for an export: all of its ops, blocks and marks.

    spans = LogSpans(session, log, rank)
    for span in spans.each(): ...           as values
    for text in spans.each_text(to_json):   as text, of some spans each, much faster

The ids are those of the spans that an agent has sent of the same run, or would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE
from distdbg.diagnose.session import GroupInfo, RankLog, Session
from distdbg.export.metrics.bounds import group_label
from distdbg.export.otel.facts import GroupFacts, OpFacts, RankFacts, count_message
from distdbg.export.otel.ids import COLLECTIVE, Numbering
from distdbg.export.otel.matching import MessageNumbers
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import Choice, OpSpans
from distdbg.export.otel.regions import RegionSpans
from distdbg.export.otel.templates import Template, ToJson, make_template, values_of
from distdbg.export.otel.whole import EVERYTHING
from distdbg.record.entries import label_of_kind
from distdbg.record.format import Flag

_ALL: Final = Choice(why="exported")
_BESIDE: Final = int(Flag.MESSAGE | Flag.ASIDE)


def rank_facts(run: str, session: Session, log: RankLog) -> RankFacts:
    """Whose spans they are."""
    return RankFacts(
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

    def __init__(self, session: Session, log: RankLog, rank: RankFacts) -> None:
        self._session, self._log = session, log
        latest = max(log.heartbeat_ns, log.exit_ns, max(log.ops.issued_ns, default=NEVER))
        #: When what has not ended ends.
        self._last_ns = latest + log.offset_ns
        self._spans, self._regions = OpSpans(rank), RegionSpans(rank, EVERYTHING)
        self._notes = sorted(log.notes, key=lambda note: note.number)
        self._noted = 0
        self._groups: dict[int, GroupFacts] = {NONE: GroupFacts()}
        self._numberings: dict[int, Numbering] = {}
        self._messages = MessageNumbers()
        self._templates: dict[tuple[object, ...], Template | None] = {}

    def each(self) -> Iterator[SpanData]:
        """By the numbers at which ops were issued."""
        for at, number in enumerate(self._log.ops.number):
            yield from self._notes_before(number)
            yield from self._make(at)
        yield from self._notes_before(None)

    def each_text(self, to_json: ToJson) -> Iterator[str]:
        """The same as text; `to_json` of some spans is that of each, with something between them."""
        ops = self._log.ops
        if not ops.comm:
            ops.comm.extend([0] * len(ops))
        rows = zip(
            ops.number, ops.flags, ops.status, ops.started_ns, ops.ended_ns, ops.issued_ns,
            ops.group, ops.seq, ops.form, ops.stack, ops.thread, ops.comm, ops.kind, strict=True,
        )  # fmt: skip
        offset, rank = self._log.offset_ns, self._log.rank
        for at, (
            number, flags, status, started_ns, ended_ns, issued_ns, group, seq, *what,
        ) in enumerate(rows):  # fmt: skip
            if self._noted < len(self._notes):
                notes = list(self._notes_before(number))
                if notes:
                    yield to_json(notes)
            # What is NEVER is before all else.
            if flags & _BESIDE or status or not NEVER < issued_ns <= started_ns <= ended_ns:
                yield to_json(self._make(at))
                continue
            key = (flags, group, self._regions.innermost(what[2]), *what)
            try:
                template = self._templates[key]
            except KeyError:
                op = self._op(at)
                template = self._templates[key] = make_template(op, self._spans, _ALL, to_json)
            if template is None:
                yield to_json(self._make(at))
                continue
            if group not in self._numberings:
                name = self._group(group).name
                self._numberings[group] = Numbering(
                    self._spans.rank.run, self._spans.rank.start, name, COLLECTIVE
                )
            yield template.fill(
                values_of(
                    self._numberings[group].trace_id(seq),
                    rank,
                    seq,
                    number,
                    issued_ns + offset,
                    started_ns + offset,
                    ended_ns + offset,
                )
            )
        if notes := list(self._notes_before(None)):
            yield to_json(notes)

    def _make(self, at: int) -> Iterator[SpanData]:
        return self._spans.make(self._op(at), _ALL, self._last_ns)

    def _notes_before(self, number: int | None) -> Iterator[SpanData]:
        while self._noted < len(self._notes):
            note = self._notes[self._noted]
            if number is not None and note.number > number:
                return
            self._noted += 1
            yield from self._regions.take(note)

    def _op(self, at: int) -> OpFacts:
        """To be called for each message once, in order."""
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
        )

    def _group(self, index: int) -> GroupFacts:
        if index not in self._groups:
            self._groups[index] = _group_facts(self._session.groups[index])
        return self._groups[index]


def _group_facts(group: GroupInfo) -> GroupFacts:
    return GroupFacts(
        name=group.name,
        label=group_label(group.label, group.name, len(group.ranks)),
        title=group.label,
        ranks=group.ranks,
        size=len(group.ranks),
        backend=group.backend,
    )
