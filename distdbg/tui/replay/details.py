"""One op on all its ranks, one rank closely, where ranks were: of a session at a moment. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.comparing import Comparer
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_site
from distdbg.record.folders import SUFFIX
from distdbg.record.form_text import show_form
from distdbg.record.format import Flag, Status
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.stacks import own_frames
from distdbg.render.story import status_text
from distdbg.render.words import iso_text
from distdbg.tui.replay.bars import bar_of
from distdbg.tui.replay.moments import Moments
from distdbg.tui.replay.ranks import group_reports, in_op, rank_row
from distdbg.view.differences import RankCall, say_differences, say_hidden
from distdbg.view.groups import group_rows
from distdbg.view.rank_facts import GroupFacts, RankFacts, fact_rows, level_name
from distdbg.view.short_words import frame_text
from distdbg.view.snapshot import Arrival, OpDetail, OpKey, RankDetail, StackGroup, Stacks

_MAX_HISTORY: Final = 200
_MAX_SIDES: Final = 8
_NO_COLLECTIVE: Final = Flag.MESSAGE | Flag.ASIDE


def op_detail(moments: Moments, key: OpKey, at_ns: int) -> OpDetail | None:
    """The op as it was then; one that nobody had called yet, as it was to be."""
    session = moments.session
    one = _find(moments, key)
    if one is None:
        return None
    ops = session.ranks[one.rank].ops
    flags, group = ops.flags[one.at], ops.group[one.at]
    calls: dict[int, OpRef] = {}
    members: Sequence[int] = (one.rank,)
    if not flags & _NO_COLLECTIVE:
        calls = moments.matched.of(group).at(ops.seq[one.at])
        members = sorted({*session.members(group), *calls})
    elif flags & Flag.MESSAGE:
        calls = {one.rank: one}
        other = _other_side(session, one)
        if other is not None:
            calls[other.rank] = other
        members = sorted({one.rank, *calls, *([ops.peer[one.at]] if ops.peer[one.at] >= 0 else [])})
    else:
        calls = _same_aside(session, one, session.members(group))
        members = sorted({*session.members(group), *calls})
    came = [_issued(session, op) for op in calls.values()]
    if at_ns < min(came):
        at_ns = max(session.now_ns, *came)
    return OpDetail(
        name=session.name_of(one),
        arrivals=tuple(_arrival(session, rank, calls.get(rank), at_ns) for rank in members),
        says=() if flags & _NO_COLLECTIVE else _says(session, calls, members, at_ns),
    )


def _issued(session: Session, op: OpRef) -> int:
    return session.time_ns(op.rank, session.ranks[op.rank].ops.issued_ns[op.at])


def _find(moments: Moments, key: OpKey) -> OpRef | None:
    session = moments.session
    if key.number and key.rank in session.ranks:
        numbers = session.ranks[key.rank].ops.number
        at = bisect_left(numbers, key.number)
        if at < len(numbers) and numbers[at] == key.number:
            return OpRef(key.rank, at)
    for index, group in enumerate(session.groups):
        if key.group in (group.name, group.label):
            found = moments.matched.of(index).at(key.seq)
            if found:
                return found.get(key.rank) or found[min(found)]
    return None


def _other_side(session: Session, op: OpRef) -> OpRef | None:
    """The other half of a message: the same number among those between the two."""
    mine = session.ranks[op.rank].ops
    peer = mine.source[op.at] if mine.peer[op.at] < 0 else mine.peer[op.at]
    if peer not in session.ranks or peer == op.rank:
        return None
    theirs = session.ranks[peer].ops
    wanted = mine.group[op.at], mine.seq[op.at]
    for at in range(len(theirs) - 1, -1, -1):
        if (
            theirs.flags[at] & Flag.MESSAGE
            and theirs.kind[at] != mine.kind[op.at]
            and (theirs.group[at], theirs.seq[at]) == wanted
            and op.rank in (theirs.peer[at], theirs.source[at])
        ):
            return OpRef(peer, at)
    return None


def _same_aside(session: Session, op: OpRef, members: Sequence[int]) -> dict[int, OpRef]:
    mine = session.ranks[op.rank].ops
    wanted = mine.kind[op.at], mine.group[op.at], mine.seq[op.at]
    found = {op.rank: op}
    for rank in members:
        log = session.ranks.get(rank)
        if log is None or rank == op.rank:
            continue
        ops = log.ops
        for at in range(len(ops) - 1, -1, -1):
            if ops.flags[at] & Flag.ASIDE and (ops.kind[at], ops.group[at], ops.seq[at]) == wanted:
                found[rank] = OpRef(rank, at)
                break
    return found


def _arrival(session: Session, rank: int, op: OpRef | None, at_ns: int) -> Arrival:
    if op is None or _issued(session, op) > at_ns:
        return Arrival(rank=rank, has_come=False)
    ops = session.ranks[rank].ops
    ended = session.time_ns(rank, ops.ended_ns[op.at])
    started = session.time_ns(rank, ops.started_ns[op.at])
    is_open = ended == NEVER or ended > at_ns
    site = session.site_of(op)
    return Arrival(
        rank=rank,
        has_come=True,
        issued=_issued(session, op) / 1e9,
        started=None if started == NEVER or started > at_ns else started / 1e9,
        ended=None if is_open else ended / 1e9,
        status=status_text(IN_FLIGHT if is_open else ops.status[op.at]),
        form=show_form(session.forms[ops.form[op.at]]),
        site=say_site(site),
        stack=tuple(map(str, session.stacks[ops.stack[op.at]])),
        error="" if is_open else ops.errors.get(op.at, ""),
    )


def _says(
    session: Session, calls: dict[int, OpRef], members: Sequence[int], at_ns: int
) -> tuple[str, ...]:
    """What differs, and who is not there."""
    there = {rank: op for rank, op in calls.items() if _issued(session, op) <= at_ns}
    absent = [rank for rank in members if rank not in there] if there else []
    alike: dict[tuple[int, int, int], list[int]] = {}
    for rank, op in there.items():
        ops = session.ranks[rank].ops
        key = ops.kind[op.at], ops.form[op.at], ops.fingerprint[op.at]
        alike.setdefault(key, []).append(rank)
    sides = sorted(alike.values(), key=lambda ranks: (-len(ranks), ranks))
    compare = Comparer(session)
    differ = [
        (ranks, aspects)
        for ranks in sides[1:]
        if (aspects := compare.differing(there[ranks[0]], there[sides[0][0]]))
    ]
    # Forms may differ where the call allows it: those of the root of a gather.
    called = {rank: _called(session, op, has_form=bool(differ)) for rank, op in there.items()}
    says = say_differences(called, absent)
    for ranks, aspects in differ[:_MAX_SIDES]:
        if called[ranks[0]] == called[sides[0][0]]:
            says.append(say_hidden(ranks, sides[0], aspects))
    return tuple(says)


def _called(session: Session, op: OpRef, *, has_form: bool) -> RankCall:
    ops = session.ranks[op.rank].ops
    return RankCall(
        op=session.name_of(op),
        form=show_form(session.forms[ops.form[op.at]]) if has_form else "",
        comm=session.comms[ops.comm[op.at]],
    )


# ------------------------------------------------------------------------------- ranks, stacks


def rank_detail(moments: Moments, rank: int, at_ns: int) -> RankDetail | None:
    """The rank, what it was in, and what it had done."""
    session = moments.session
    log = session.ranks.get(rank)
    if log is None:
        return None
    mine = moments.of(rank)
    row, opened, count = rank_row(moments, rank, at_ns), mine.open(at_ns), mine.count(at_ns)
    place = in_op(log, opened, at_ns - log.offset_ns)
    stack = session.stacks[log.ops.stack[place]] if place is not None else ()
    first = max(0, count - _MAX_HISTORY)
    return RankDetail(
        row=row,
        facts=fact_rows(_facts(moments, rank, at_ns, count)),
        in_flight=tuple(bar_of(session, rank, at) for at in opened),
        history=tuple(bar_of(session, rank, at) for at in range(count - 1, first - 1, -1)),
        stack=tuple(map(str, stack)),
    )


def _facts(moments: Moments, rank: int, at_ns: int, count: int) -> RankFacts:
    session = moments.session
    log, own_ns = session.ranks[rank], at_ns - session.ranks[rank].offset_ns
    ops = log.ops
    failed = (
        (session.name_of(OpRef(rank, at)), status_text(ops.status[at]), ops.errors.get(at, ""))
        for at in range(count - 1, max(0, count - _MAX_HISTORY) - 1, -1)
        if ops.status[at] not in (Status.OK, IN_FLIGHT) and ops.ended_ns[at] <= own_ns
    )
    by_number = {ops.number[at] for at in moments.of(rank).open(at_ns)}
    return RankFacts(
        argv=log.argv,
        level=level_name(log.level) if log.source.endswith(SUFFIX) else "",
        began=iso_text(log.began_ns + log.offset_ns) if log.began_ns else "",
        ops=count,
        groups=[
            GroupFacts(
                label=row.label,
                rank=row.ranks.index(rank) if rank in row.ranks else None,
                size=len(row.ranks),
                issued=row.issued[rank],
                ended=row.ended[rank],
                is_closed=rank in row.closed,
                is_broken=rank in row.broken,
            )
            for row in group_rows(group_reports(moments, at_ns, (rank,)))
            if rank in row.issued
        ],
        waits=[
            (wait.thread, say_site(next(iter(session.stacks[wait.stack]), None)), wait.number)
            for wait in log.work_waits
            if wait.number in by_number and wait.since_ns <= own_ns
        ],
        failed=failed,
        lost={what: many for what, many in log.lost.items() if what != "gaps"},
        gaps=log.lost.get("gaps", 0),
        record=log.source,
    )


def stacks_at(moments: Moments, ranks: Sequence[int] | None, at_ns: int) -> Stacks:
    """Where ranks were by what they had recorded: the stack of the op they were in, or what was seen."""
    session = moments.session
    groups: dict[tuple[str, tuple[RecordedFrame, ...]], list[int]] = {}
    failed = {}
    for rank in ranks if ranks is not None else session.ranks:
        log = session.ranks.get(rank)
        if log is None:
            failed[rank] = "no data"
            continue
        opened = moments.of(rank).open(at_ns)
        place = in_op(log, opened, at_ns - log.offset_ns)
        row_at = rank_row(moments, rank, at_ns)
        seen = log.activity
        frames: tuple[RecordedFrame, ...] = ()
        if seen is not None and seen.stack and seen.state is row_at.state and place is None:
            frames = seen.stack
        elif place is not None:
            frames = session.stacks[log.ops.stack[place]]
        if frames:
            what = (
                f"in {session.kind_of(OpRef(rank, place))}"
                if place is not None
                else str(row_at.state)
            )
            groups.setdefault((what, own_frames(frames)), []).append(rank)
        elif row_at.state.is_over:
            failed[rank] = row_at.why or str(row_at.state)
        else:
            failed[rank] = "outside of ops, where no stack is recorded"
    found = [
        StackGroup(
            ranks=tuple(members),
            thread=what,
            frames=tuple(frame_text(frame.function, frame.file, frame.line) for frame in frames),
        )
        for (what, frames), members in groups.items()
    ]
    found.sort(key=lambda one: (-len(one.ranks), one.ranks))
    return Stacks(groups=tuple(found), failed=failed, how="as recorded", at=at_ns / 1e9)
