"""The spans of a rank that was read for an export: all of its ops, blocks and marks.

    for span in spans_of_log(session, log, rank): ...

The ids are those of the spans that an agent has sent of the same run, or would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE
from distdbg.diagnose.session import GroupInfo, RankLog, Session
from distdbg.export.metrics.bounds import group_label
from distdbg.export.otel.facts import GroupFacts, OpFacts, RankFacts, count_message
from distdbg.export.otel.matching import MessageNumbers
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.ops import Choice, OpSpans
from distdbg.export.otel.regions import RegionSpans
from distdbg.export.otel.whole import EVERYTHING
from distdbg.record.entries import label_of_kind
from distdbg.record.format import Flag

_ALL: Final = Choice(why="exported")


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


def spans_of_log(session: Session, log: RankLog, rank: RankFacts) -> Iterator[SpanData]:
    """By the numbers at which ops were issued; what has not ended ends when the rank was last seen."""
    latest = max(log.heartbeat_ns, log.exit_ns, max(log.ops.issued_ns, default=NEVER))
    ended_ns = latest + log.offset_ns
    spans, regions = OpSpans(rank), RegionSpans(rank, EVERYTHING)
    notes = sorted(log.notes, key=lambda note: note.number)
    at = 0
    for op in each_op_of_log(session, log):
        while at < len(notes) and notes[at].number < op.number:
            yield from regions.take(notes[at])
            at += 1
        region = regions.innermost(op.thread)
        yield from spans.make(replace(op, region=region) if region else op, _ALL, ended_ns)
    yield from regions.take_all(notes[at:])


def each_op_of_log(session: Session, log: RankLog) -> Iterator[OpFacts]:
    """All ops of a rank in their order, on the run's clock."""
    ops, offset = log.ops, log.offset_ns
    groups: dict[int, GroupFacts] = {NONE: GroupFacts()}
    numbers = MessageNumbers()
    for at in range(len(ops)):
        group, kind, flags = ops.group[at], ops.kind[at], ops.flags[at]
        if group not in groups:
            groups[group] = _group_facts(session.groups[group])
        form = session.forms[ops.form[at]] if ops.form[at] else None
        stack = session.stacks[ops.stack[at]]
        is_message = bool(flags & Flag.MESSAGE)
        source, peer, message = ops.source[at], None, None
        if is_message:
            peer = next((r for r in (source, ops.peer[at]) if r != NONE), None)
            message = count_message(
                numbers,
                kind=kind,
                group=group,
                peer=ops.peer[at],
                tag=ops.tag[at],
                seq=ops.seq[at],
                op=ops.number[at],
                source=None if source == NONE else source,
            )
        started_ns, ended_ns = ops.started_ns[at], ops.ended_ns[at]
        yield OpFacts(
            number=ops.number[at],
            group=groups[group],
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
        )


def _group_facts(group: GroupInfo) -> GroupFacts:
    return GroupFacts(
        name=group.name,
        label=group_label(group.label, group.name, len(group.ranks)),
        title=group.label,
        ranks=group.ranks,
        size=len(group.ranks),
        backend=group.backend,
    )
