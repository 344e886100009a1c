"""Ranks of a session at a moment, as rows of a snapshot, and what it tells of groups then. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import say_site, short_site
from distdbg.record.format import Aside, Exit, Flag
from distdbg.record.rank_state import RankState
from distdbg.tui.replay.moments import Moments
from distdbg.view.groups import GroupReport
from distdbg.view.short_words import raised, shown_end, with_comm
from distdbg.view.snapshot import RankRow


def seconds(ns: int) -> float:
    """Seconds of unix time; 0: never."""
    return 0.0 if ns == NEVER else ns / 1e9


def rank_row(moments: Moments, rank: int, at_ns: int) -> RankRow:
    session = moments.session
    log, mine = session.ranks[rank], moments.of(rank)
    opened = mine.open(at_ns)
    moved_ns = mine.moved_ns(at_ns)
    own_ns = at_ns - log.offset_ns
    at, since_ns, stack, is_held = _place(log, opened, own_ns)
    state, state_ns, why, seen = _state(log, opened, at, is_held, own_ns, moved_ns)
    if state_ns == NEVER:
        state_ns = since_ns + log.offset_ns if since_ns != NEVER else moved_ns
    if state_ns == NEVER:
        state_ns = log.began_ns + log.offset_ns if log.began_ns else at_ns
    frames = session.stacks[stack] if 0 < stack < len(session.stacks) else ()
    count = mine.count(at_ns)
    return RankRow(
        rank=rank,
        host=log.host,
        pid=log.pid,
        state=state,
        state_at=seconds(state_ns),
        moved_at=seconds(moved_ns),
        op=_called(session, OpRef(rank, at)) if at is not None else "",
        site=short_site(seen)
        or _seen_last(log, opened, own_ns, moved_ns)
        or say_site(frames[0] if frames else None),
        why=why,
        seqs=tuple(
            (session.groups[group].label, moments.issued_seq(group, rank, count))
            for group in log.progress
        ),
        attempt=session.attempt,
    )


def _called(session: Session, op: OpRef) -> str:
    comm = session.comms[session.ranks[op.rank].ops.comm[op.at]]
    return with_comm(session.name_of(op), comm)


def _seen_last(log: RankLog, opened: Sequence[int], own_ns: int, moved_ns: int) -> str:
    """Where it was seen from outside before it went, if it had called nothing since; '' else."""
    seen = log.activity
    if seen is None or opened or seen.since_ns > own_ns or moved_ns > seen.since_ns + log.offset_ns:
        return ""
    return short_site(seen.site or (str(seen.stack[0]) if seen.stack else ""))


def in_op(log: RankLog, opened: Sequence[int], own_ns: int) -> int | None:
    """The op that tells most about where it is; None: in none."""
    return _place(log, opened, own_ns)[0]


def _place(log: RankLog, opened: Sequence[int], own_ns: int) -> tuple[int | None, int, int, bool]:
    """The op it is in, since when, the stack, and whether the program waits in it: first one that blocks."""
    ops = log.ops
    for at in opened:
        if not ops.flags[at] & Flag.ASYNC:
            return at, ops.issued_ns[at], ops.stack[at], True
    by_number = {ops.number[at]: at for at in opened}
    for wait in log.work_waits:
        at_or_none = by_number.get(wait.number)
        if at_or_none is not None and wait.since_ns <= own_ns:
            return at_or_none, wait.since_ns, wait.stack or ops.stack[at_or_none], True
    if opened:
        return opened[0], ops.issued_ns[opened[0]], ops.stack[opened[0]], False
    return None, NEVER, 0, False


def _state(
    log: RankLog,
    opened: Sequence[int],
    at: int | None,
    is_held: bool,
    own_ns: int,
    moved_ns: int,
) -> tuple[RankState, int, str, str]:
    """State, since when (session's clock; NEVER: since the op), why, and where it was seen."""
    off, ops = log.offset_ns, log.ops
    if log.began_ns > own_ns:
        return RankState.STARTING, NEVER, "", ""
    end = log.end
    if end is not None and end.ended_ns <= own_ns:
        said = raised(log.exit_what, log.exit_where) if log.exit is Exit.RAISED else ""
        has_left = log.exit in (Exit.LEFT, Exit.RETURNED)
        state, why = shown_end(end, said=said, has_left=has_left)
        return state, end.ended_ns + off, why, ""
    if log.exit is not None and log.exit_ns <= own_ns:
        since = NEVER if log.exit_ns == NEVER else log.exit_ns + off
        if log.exit is Exit.RAISED:
            return RankState.FAILED, since, raised(log.exit_what), log.exit_where
        is_over = log.exit is Exit.RETURNED
        return (RankState.ENDED if is_over else RankState.LEFT), since, "", ""
    seen = log.activity
    if seen is not None and seen.since_ns <= own_ns and moved_ns <= seen.since_ns + off:
        return seen.state, seen.since_ns + off, seen.why, seen.site
    if any(ops.kind[i] == Aside.DEBUGGER and ops.flags[i] & Flag.ASIDE for i in opened):
        return RankState.DEBUGGED, NEVER, "", ""
    if at is not None and is_held and not ops.started_ns[at] > NEVER:
        return RankState.WAITING, NEVER, "", ""
    if at is not None and is_held and ops.started_ns[at] > own_ns:
        return RankState.WAITING, NEVER, "", ""
    if at is None and moved_ns == NEVER and not log.began_ns:
        return RankState.STARTING, NEVER, "", ""
    return RankState.RUNNING, NEVER, "", ""


def group_reports(
    moments: Moments, at_ns: int, ranks: Iterable[int] | None = None
) -> list[GroupReport]:
    """How far each member of each group had come; `ranks`: these members alone."""
    session = moments.session
    issued: list[dict[int, int]] = [{} for _ in session.groups]
    ended: list[dict[int, int]] = [{} for _ in session.groups]
    closed: list[list[int]] = [[] for _ in session.groups]
    broken: list[dict[int, str]] = [{} for _ in session.groups]
    for rank in session.ranks if ranks is None else ranks:
        log = session.ranks[rank]
        mine, own_ns = moments.of(rank), at_ns - log.offset_ns
        count, opened = mine.count(at_ns), mine.open(at_ns)
        first_open: dict[int, int] = {}
        for at in opened:
            if not log.ops.flags[at] & (Flag.MESSAGE | Flag.ASIDE):
                first_open.setdefault(log.ops.group[at], log.ops.seq[at])
        for group, far in log.progress.items():
            seq = moments.issued_seq(group, rank, count)
            issued[group][rank] = seq
            ended[group][rank] = min(seq, first_open.get(group, seq + 1) - 1)
            if far.closed_ns is not None and far.closed_ns <= own_ns:
                closed[group].append(rank)
            if far.broken is not None and count == len(log.ops) and not opened:
                broken[group][rank] = far.broken
    return [
        GroupReport(
            name=group.name,
            label=group.label,
            ranks=tuple(session.members(at)),
            backend=group.backend,
            issued=issued[at],
            ended=ended[at],
            closed=closed[at],
            broken=broken[at],
        )
        for at, group in enumerate(session.groups)
    ]


def group_label(session: Session, group: int) -> str:
    return "" if group == NONE else session.groups[group].label
