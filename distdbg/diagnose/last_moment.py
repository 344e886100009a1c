"""Makes the session as it was right before its first op failed. Pure.

    moment = last_moment(session)         the session itself where nothing has failed or was ended
    moment.cut                            how the first op failed

A job that hung and timed out is no longer blocked when its record is read: each op has ended, with an
error. But until the first of them failed, all who were blocked had been so for long. So the time of that
first failure, on the session's clock, is taken for all ranks, and each is shown as it was then:

    ops issued later                                     are not there
    ops that failed then or later, or ended later        are in flight
    ranks that went later, groups closed later           are still there

An error after which its rank's ops went well again does not count: the job had got over it.

When a rank leaves, which ranks notice first is a matter of microseconds: a rank may call the op after the
first one has noticed, or another op that needs one that gave up. Such a rank is shown as it was when it
noticed itself; a rank that left well without another op counts as gone before. So the verdict is the same
each time.

Does that prove anything? For a thread in a blocking op, yes: it was in that op from its issue to its failure
and did nothing else, however wrong its clock is; a rank is only shown as having
not yet issued an op if its own clock, corrected, says so, and an op that ended well within the error of
the clocks counts as ended. A wait for an op begun earlier (`Work.wait`) is not recorded once it is over:
its thread is taken to have waited if it issued nothing after the op until that failed, first of all for
the one of its ops that failed first. That is likely, not proven: it may have computed for as long as the
timeout of the op is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from distdbg.diagnose.endings import Endings, EndRole, RankEnding, endings_of
from distdbg.diagnose.failures import Failure, Failures, failures_of
from distdbg.diagnose.matching import GroupOps, Matched, RankOps
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, Ops
from distdbg.diagnose.session import NO_EXIT, GroupProgress, RankLog, Session, WorkWait
from distdbg.diagnose.stops import killed_at_once, stop_of
from distdbg.record.format import NO_COLLECTIVE, Flag, Status

#: How an op ends that waited, when something outside it gives up.
_CUT: Final = frozenset(
    (
        Status.TIMEOUT,
        Status.PEER_LOST,
        Status.NETWORK,
        Status.BROKEN,
        Status.INTERRUPTED,
        Status.ABORTED,
    )
)
#: A death is felt by others before whoever watches processes has written it down.
DEATH_NS: Final = 2 * 10**9


def last_moment(session: Session) -> Session:
    """What all ranks were in when the first of them gave up."""
    failures = failures_of(session)
    endings = endings_of(session, failures)
    stop = stop_of(session, failures, endings)
    killed_ns = killed_at_once(session, endings)
    cuts = [*_cuts(session, failures), *_asked(endings)]
    if killed_ns is not None:
        cuts.append((killed_ns, Status.ABORTED))
    if not cuts and session.was_killed:
        cuts.append((session.now_ns, Status.ABORTED))
    if not cuts:
        return session
    at_ns, status = min(cuts)
    words = "the job was killed" if session.was_killed else ""
    if killed_ns is not None and killed_ns <= at_ns:
        endings = {r: replace(e, part=EndRole.INTERRUPTED) for r, e in endings.items()}
        words = "all ranks were killed by SIGKILL"
    elif stop is not None and stop.at_ns <= at_ns + DEATH_NS:
        words = stop.words
    elif status == Status.TIMEOUT:
        words = "the op timed out"
    alike = _reported_of_one_leaver(session, failures, endings, at_ns)
    ranks = {
        rank: _as_of(session, log, alike.get(rank, at_ns), status, endings.get(rank))
        for rank, log in session.ranks.items()
    }
    return replace(
        session, ranks=ranks, is_live=True, now_ns=at_ns, cut=Status(status), cut_words=words
    )


def matched_at(matched: Matched, session: Session, moment: Session) -> Matched:
    """What `match` would give for the moment: its ranks have the same ops, or the first of them."""
    cut = {
        rank: len(moment.ranks[rank].ops)
        for rank, log in session.ranks.items()
        if len(moment.ranks[rank].ops) < len(log.ops)
    }
    if not cut:
        return matched
    groups = {}
    for group, ops in matched:
        by_rank = {
            rank: _before(mine, cut[rank]) if rank in cut else mine
            for rank, mine in ops.by_rank.items()
        }
        groups[group] = GroupOps({rank: mine for rank, mine in by_rank.items() if mine.indexes})
    return Matched(groups)


def _before(mine: RankOps, kept: int) -> RankOps:
    indexes = mine.indexes[:]
    while indexes and not 0 <= indexes[-1] < kept:
        indexes.pop()
    return RankOps(mine.first_seq, indexes)


def _cuts(session: Session, failures: Failures) -> Iterable[tuple[int, int]]:
    for rank, errors in failures.items():
        for error in errors:
            if error.op is None or error.went_on or error.at_ns == NEVER:
                continue
            status = session.ranks[rank].ops.status[error.op.at]
            if status in _CUT:
                yield error.at_ns, status


def _reported_of_one_leaver(
    session: Session,
    failures: Failures,
    endings: Endings,
    at_ns: int,
) -> dict[int, int]:
    """The moments of ranks that have others than `at_ns`, when the first was told that somebody had left.

    Of those that were told of that op later, or of another one that they called later; of those that called
    nothing more and left well.
    """
    reported = [
        error
        for errors in failures.values()
        for error in errors
        if error.type == "RankLeft" and error.op is not None and not error.went_on
    ]
    first = next((error for error in reported if error.at_ns == at_ns), None)
    if first is None:
        return {}
    moments = {
        rank: max(ending.at_ns + 1, at_ns)
        for rank, ending in endings.items()
        if ending.part is EndRole.FINE
        and ending.at_ns != NEVER
        and not _has_op_since(session, rank, at_ns)
    }
    place = (first.group, first.seq, first.kind)
    firsts: dict[int, Failure] = {}
    for error in reported:
        firsts.setdefault(error.rank, error)
    for error in reversed(reported):
        # A message has one other side only.
        is_same_op = first.seq > 0 and (error.group, error.seq, error.kind) == place
        if is_same_op or (firsts[error.rank] is error and _came_later(session, error, at_ns)):
            moments[error.rank] = max(error.at_ns, at_ns)
    return moments


def _came_later(session: Session, error: Failure, at_ns: int) -> bool:
    """Whether the op was called since, however wrong the clock is: its rank might have waited there."""
    op = error.op
    if op is None:
        return False
    log = session.ranks[op.rank]
    slack_ns = log.clock_error_ns or 0
    return session.time_ns(op.rank, log.ops.issued_ns[op.at]) - slack_ns > at_ns


def _has_op_since(session: Session, rank: int, at_ns: int) -> bool:
    issued_ns = session.ranks[rank].ops.issued_ns
    return bool(issued_ns) and session.time_ns(rank, issued_ns[-1]) > at_ns


def _asked(endings: dict[int, RankEnding]) -> Iterable[tuple[int, int]]:
    for ending in endings.values():
        if ending.part in (EndRole.ENDED, EndRole.INTERRUPTED) and ending.at_ns != NEVER:
            yield ending.at_ns, Status.ABORTED


def _as_of(
    session: Session,
    log: RankLog,
    at_ns: int,
    status: int,
    ending: RankEnding | None,
) -> RankLog:
    own_ns = at_ns - log.offset_ns
    slack_ns = log.clock_error_ns or 0
    kept = bisect_right(log.ops.issued_ns, own_ns)
    opened = _still_open(log.ops, kept, own_ns, slack_ns)
    was_there = kept < len(log.ops) or bool(opened)
    facts: dict[str, object] = {
        "progress": _progress(log, kept, opened, own_ns, status),
        "ops": _shown(log.ops, kept, opened, own_ns),
        "work_waits": _waits(log, kept, opened, own_ns),
    }
    if not session.is_live and not log.lost.get("ops"):
        facts["last_asides"] = {}  # there are no others than in `ops`
    was_alive = ending is not None and not _had_gone(ending, at_ns, was_there)
    if was_alive:
        facts |= {**NO_EXIT, "end": None}
    seen = log.activity
    if was_alive and seen is not None and seen.state.is_over:
        before = [one for one in log.activities if not one.state.is_over]
        facts["activity"] = before[-1] if before else None
    elif seen is not None and (seen.since_ns > own_ns or (seen.state.is_over and was_there)):
        earlier = log.seen_at(own_ns)
        is_over = earlier is not None and earlier.state.is_over and was_there
        facts["activity"] = None if is_over else earlier
    return replace(log, **facts)  # type: ignore[arg-type]


def _had_gone(ending: RankEnding, at_ns: int, was_there: bool) -> bool:
    if ending.at_ns == NEVER:
        return not was_there
    if ending.part is EndRole.CAUSE:
        return ending.at_ns <= at_ns + DEATH_NS
    return ending.at_ns < at_ns and not was_there


def _still_open(ops: Ops, kept: int, own_ns: int, slack_ns: int) -> list[int]:
    """The ops that had not ended then, of those that have since."""
    ended = ops.ended_ns
    if not kept or max(ended) < own_ns - slack_ns:
        return []
    found = []
    for at in range(kept):
        since = ended[at] - own_ns
        if ended[at] != NEVER and (
            since > slack_ns or (since >= -slack_ns and ops.status[at] in _CUT)
        ):
            found.append(at)
    return found


def _shown(ops: Ops, kept: int, opened: list[int], own_ns: int) -> Ops:
    if kept == len(ops) and not opened:
        return ops
    shown = ops if kept == len(ops) else _head(ops, kept)
    status, ended, started = shown.status[:], shown.ended_ns[:], shown.started_ns[:]
    for at in opened:
        status[at], ended[at] = IN_FLIGHT, NEVER
        if started[at] > own_ns or started[at] >= ops.ended_ns[at]:
            started[at] = NEVER
    return replace(shown, status=status, ended_ns=ended, started_ns=started)


def _head(ops: Ops, kept: int) -> Ops:
    columns = {
        name: getattr(ops, name)[:kept]
        for name in Ops.__slots__
        if isinstance(getattr(ops, name), array)
    }
    return Ops(**columns, errors={at: text for at, text in ops.errors.items() if at < kept})


def _progress(
    log: RankLog, kept: int, opened: list[int], own_ns: int, status: int
) -> dict[int, GroupProgress]:
    ops = log.ops
    # A rank that destroys a group tells the others first, and writes it down then.
    closed_until_ns = own_ns + DEATH_NS if status == Status.PEER_LOST else own_ns
    shown = {
        group: replace(
            far,
            closed_ns=far.closed_ns if (far.closed_ns or NEVER) <= closed_until_ns else None,
            broken=None,
        )
        for group, far in log.progress.items()
    }
    for at in range(kept, len(ops)):
        far = shown.get(ops.group[at])
        if far is not None and not ops.flags[at] & NO_COLLECTIVE and ops.seq[at] <= far.issued_seq:
            shown[ops.group[at]] = replace(far, issued_seq=ops.seq[at] - 1)
    for group, far in shown.items():
        shown[group] = replace(far, ended_seq=min(far.ended_seq, far.issued_seq))
    for at in opened:
        far = shown.get(ops.group[at])
        if far is not None and not ops.flags[at] & NO_COLLECTIVE and ops.seq[at] <= far.ended_seq:
            shown[ops.group[at]] = replace(far, ended_seq=ops.seq[at] - 1)
    return shown


def _waits(log: RankLog, kept: int, opened: list[int], own_ns: int) -> tuple[WorkWait, ...]:
    """Those known, and those of threads that issued nothing after what failed them."""
    ops = log.ops
    last_number = ops.number[kept - 1] if kept else 0
    waits = [w for w in log.work_waits if w.since_ns <= own_ns and w.number <= last_number]
    known = {wait.thread for wait in waits}
    cut = [at for at in opened if ops.status[at] in _CUT and ops.flags[at] & Flag.ASYNC]
    if not cut:
        return tuple(waits)
    open_now = set(opened)
    for at in sorted(cut, key=lambda at: ops.ended_ns[at]):
        thread = ops.thread[at]
        after = [
            i
            for i in range(at + 1, kept)
            if ops.thread[i] == thread
            and not (ops.flags[i] & Flag.ASYNC and (i in open_now or ops.ended_ns[i] == NEVER))
        ]
        if thread in known or after:
            continue
        number, since_ns = ops.number[at], ops.issued_ns[at]
        waits.append(WorkWait(thread=thread, number=number, since_ns=since_ns, is_guess=True))
    return tuple(waits)
