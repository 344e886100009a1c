"""Makes the session as it was at an earlier moment. Pure.

    then = session_at(session, at_ns)       at_ns: on the session's clock
    diagnose(then)                          the verdict of that moment

Ops issued later are not there, those that ended later are in flight, ranks that went later are still there.
What a rank was seen to do from outside is known from that time on, not before. `last_moment` is the same for
one moment, at which the ops of a job began to fail, and is careful with the errors of clocks; here clocks
are trusted.

A wait for an op begun earlier (`Work.wait`) is not recorded once it is over. So of the past only those are
known in which the op failed: its thread issued nothing after it, and is taken to have waited.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, Ops
from distdbg.diagnose.session import NO_EXIT, GroupProgress, RankLog, Session, WorkWait
from distdbg.record.format import NO_COLLECTIVE, Flag, Status


def session_at(session: Session, at_ns: int) -> Session:
    """Return the session as it was at a moment; clocks are those of the ranks."""
    if session.now_ns != NEVER and at_ns >= session.now_ns:
        return session
    ranks = {
        rank: _log_at(session, log, at_ns - log.offset_ns) for rank, log in session.ranks.items()
    }
    return replace(session, ranks=ranks, is_live=True, now_ns=at_ns, said=[], lines=[])


def _log_at(session: Session, log: RankLog, own_ns: int) -> RankLog:
    ops = log.ops
    kept = bisect_right(ops.issued_ns, own_ns)
    opened = (
        [at for at in range(kept) if ops.ended_ns[at] > own_ns] if _any_later(ops, own_ns) else []
    )
    facts: dict[str, object] = {
        "ops": _shown(ops, kept, opened, own_ns),
        "progress": _progress(log, kept, opened, own_ns),
        "work_waits": _waits(log, kept, opened, own_ns),
        "notes": tuple(note for note in log.notes if note.issued_ns <= own_ns),
        "found": tuple(found for found in log.found if found.at_ns <= own_ns),
        "heartbeat_ns": min(log.heartbeat_ns, own_ns),
    }
    if not session.is_live and not log.lost.get("ops"):
        facts["last_asides"] = {}  # there are no others than in `ops`
    if log.exit_ns > own_ns:
        facts |= NO_EXIT
    if log.end is not None and log.end.ended_ns > own_ns:
        facts["end"] = None
    if log.activity is not None and log.activity.since_ns > own_ns:
        facts["activity"] = log.seen_at(own_ns)
    return replace(log, **facts)  # type: ignore[arg-type]  # the names are those above


def _any_later(ops: Ops, own_ns: int) -> bool:
    return max(ops.ended_ns, default=NEVER) > own_ns


def _shown(ops: Ops, kept: int, opened: Sequence[int], own_ns: int) -> Ops:
    if kept == len(ops) and not opened:
        return ops
    columns = {
        name: getattr(ops, name)[:kept]
        for name in Ops.__slots__
        if isinstance(getattr(ops, name), array)
    }
    gone = set(opened)
    errors = {at: text for at, text in ops.errors.items() if at < kept and at not in gone}
    shown = Ops(**columns, errors=errors)
    for at in opened:
        shown.status[at], shown.ended_ns[at] = IN_FLIGHT, NEVER
        if shown.started_ns[at] > own_ns or shown.started_ns[at] >= ops.ended_ns[at]:
            shown.started_ns[at] = NEVER
    return shown


def _progress(
    log: RankLog, kept: int, opened: Sequence[int], own_ns: int
) -> dict[int, GroupProgress]:
    ops = log.ops
    shown = {
        group: replace(
            far,
            closed_ns=far.closed_ns if (far.closed_ns or NEVER) <= own_ns else None,
            broken=far.broken if kept == len(ops) and not opened else None,
        )
        for group, far in log.progress.items()
    }
    later: dict[int, int] = {}
    for at in range(len(ops) - 1, kept - 1, -1):
        if not ops.flags[at] & NO_COLLECTIVE:
            group = ops.group[at]
            later[group] = min(later.get(group, ops.seq[at]), ops.seq[at])
    for group, first in later.items():
        if group in shown and first <= shown[group].issued_seq:
            shown[group] = replace(shown[group], issued_seq=first - 1)
    for group, far in shown.items():
        shown[group] = replace(far, ended_seq=min(far.ended_seq, far.issued_seq))
    for at in opened:
        maybe = shown.get(ops.group[at])
        if maybe is not None and not ops.flags[at] & NO_COLLECTIVE:
            ended = min(maybe.ended_seq, ops.seq[at] - 1)
            shown[ops.group[at]] = replace(maybe, ended_seq=ended)
    return shown


def _waits(log: RankLog, kept: int, opened: Sequence[int], own_ns: int) -> tuple[WorkWait, ...]:
    """Those known, and those for ops that failed before their thread did anything else."""
    ops = log.ops
    last_number = ops.number[kept - 1] if kept else 0
    waits = [w for w in log.work_waits if w.since_ns <= own_ns and w.number <= last_number]
    known = {wait.thread for wait in waits}
    for at in opened:
        thread = ops.thread[at]
        has_failed = ops.status[at] not in (Status.OK, IN_FLIGHT)
        if not has_failed or not ops.flags[at] & Flag.ASYNC or thread in known:
            continue
        until = bisect_right(ops.issued_ns, ops.ended_ns[at])
        if all(ops.thread[i] != thread or i in opened for i in range(at + 1, until)):
            known.add(thread)
            since_ns = ops.issued_ns[at]
            waits.append(
                WorkWait(thread=thread, number=ops.number[at], since_ns=since_ns, is_guess=True)
            )
    return tuple(waits)
