"""Order inversions: deadlocks or mismatches that have not happened yet, as lockdep finds for locks.

Ops that one thread calls one after the other, waiting for each, are not looked at: in different orders on
two ranks they would have deadlocked then and there. What can go well today and fail tomorrow is

    two threads, one group     A thread issues an op on a group while another thread is inside an op on
                               the same group. Nothing orders the two, so each rank draws which comes
                               first: another draw on one rank, and the ops meet each other's. WARNING.
    two groups, two orders     Rank a issues op i of group X before op j of group Y, rank b the other
                               way round, both being members of both, while the first was in flight
                               (asynchronous, or of another thread). Here groups run beside each
                               other, so that is legal and ends well: NOTE. Where the ops of a device run
                               in one queue (NCCL), a's queue waits in X for b, b's in Y for a, as
                               soon as no op happens to be done early: WARNING.

Groups that share one rank only cannot wait for each other in two ways, and pipelines share none with
their neighbours' neighbours: neither is looked at. Ops in flight belong to `deadlock`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from distdbg.diagnose.find.phrases import called, few
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import NEVER, NONE, OpRef, Ops
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import fit, say_ranks
from distdbg.record.format import NO_COLLECTIVE, Flag

_MAX_GROUPS: Final = 64
_MAX_FINDINGS: Final = 4


class _Crossing(NamedTuple):
    """Two ops, and how many such pairs were met."""

    x: int
    x_seq: int
    y: int
    y_seq: int
    times: int


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """Orders of ops that depend on luck, or would not do on another backend."""
    return [*_races(session), *_crossings(session, matched)]


# --------------------------------------------------------------------------------------- two threads


def _races(session: Session) -> list[Finding]:
    met: dict[int, list[tuple[OpRef, OpRef]]] = defaultdict(list)
    for rank, log in session.ranks.items():
        threads = log.ops.thread
        if threads and threads.count(threads[0]) != len(threads):
            for group, pair in threads_at_one_time(log).items():
                met[group].append((OpRef(rank, pair[0]), OpRef(rank, pair[1])))
    return [_say_race(session, group, pairs) for group, pairs in list(met.items())[:_MAX_FINDINGS]]


def threads_at_one_time(log: RankLog) -> dict[int, tuple[int, int]]:
    """Return for each group the first two synchronous ops of different threads that ran at one time."""
    ops = log.ops
    inside: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    rows = zip(ops.group, ops.flags, ops.thread, ops.issued_ns, ops.ended_ns, strict=True)
    for at, (group, flags, thread, issued, ended) in enumerate(rows):
        if group == NONE or flags & (NO_COLLECTIVE | Flag.ASYNC) or ended == NEVER:
            continue
        before = inside.get(group)
        if before is not None and thread != ops.thread[before] and issued < ops.ended_ns[before]:
            found.setdefault(group, (before, at))
        if before is None or ended > ops.ended_ns[before]:
            inside[group] = at
    return found


def _say_race(session: Session, group: int, pairs: Sequence[tuple[OpRef, OpRef]]) -> Finding:
    label = session.groups[group].label
    ranks = tuple(sorted(first.rank for first, _ in pairs))
    evidence = [
        called(session, op, f"{_say_op(session, op)} by thread {_ops(session, op).thread[op.at]}")
        for pair in pairs[:3]
        for op in pair
    ]
    first = pairs[0][0]
    return Finding(
        kind=FindingKind.ORDER_INVERSION,
        severity=Severity.WARNING,
        what=(
            f"two threads of {say_ranks(ranks)} issue ops on group '{label}' at one time: which comes "
            f"first is chance"
        ),
        ranks=ranks,
        group=label,
        seq=_ops(session, first).seq[first.at],
        at_ns=session.time_ns(first.rank, _ops(session, first).issued_ns[first.at]),
        evidence=few(evidence),
        advice="give each thread a group of its own, or let one thread issue all ops of the group",
        numbers={"ranks": float(len(ranks))},
    )


# --------------------------------------------------------------------------------------- two groups


def _crossings(session: Session, matched: Matched) -> list[Finding]:
    found = []
    for (x, y), ranks in _shared(matched).items():
        if len(ranks) < 2:
            continue
        crossing = _cross(session, matched, (x, y), ranks)
        if crossing is not None:
            found.append(_say_crossing(session, matched, crossing, ranks))
            if len(found) == _MAX_FINDINGS:
                break
    return found


def _shared(matched: Matched) -> dict[tuple[int, int], list[int]]:
    """Return for each two groups the ranks that have issued ops on both."""
    groups: dict[int, list[int]] = defaultdict(list)
    for group, ops in matched:
        for rank in ops.by_rank:
            groups[rank].append(group)
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, mine in groups.items():
        mine = sorted(mine)[:_MAX_GROUPS]
        for at, x in enumerate(mine):
            for y in mine[at + 1 :]:
                pairs[x, y].append(rank)
    return pairs


def _cross(
    session: Session, matched: Matched, pair: tuple[int, int], ranks: Sequence[int]
) -> _Crossing | None:
    xs, ys = matched.of(pair[0]), matched.of(pair[1])
    reference = ranks[0]
    theirs = None
    for rank in ranks[1:]:
        if _is_alike(xs, reference, rank) and _is_alike(ys, reference, rank):
            continue
        if theirs is None:
            theirs = _before(xs, ys, reference)
        mine = _before(xs, ys, rank)
        apart = [
            (y_seq, max(mine[y_seq], seen))
            for y_seq, seen in theirs.items()
            if mine.get(y_seq, seen) != seen
        ]
        real = [
            (x_seq, y_seq)
            for y_seq, x_seq in apart
            if _is_crossed(session, (xs, x_seq), (ys, y_seq), (reference, rank))
        ]
        if real:
            return _Crossing(pair[0], real[0][0], pair[1], real[0][1], len(real))
    return None


def _is_alike(ops: GroupOps, rank: int, other: int) -> bool:
    a, b = ops.by_rank[rank], ops.by_rank[other]
    return a.first_seq == b.first_seq and a.indexes == b.indexes


def _before(xs: GroupOps, ys: GroupOps, rank: int) -> dict[int, int]:
    """For each op of Y the last of X that the rank had issued by then, as far as that is known."""
    mine, other = xs.by_rank[rank], ys.by_rank[rank]
    if -1 in mine.indexes or not mine.indexes:
        return {}
    found = {}
    for seq, at in enumerate(other.indexes, other.first_seq):
        count = bisect_left(mine.indexes, at)
        # What came before the first that the ring still has, nobody knows.
        if at >= 0 and (count or mine.first_seq == 1):
            found[seq] = mine.first_seq - 1 + count
    return found


def _is_crossed(
    session: Session,
    x: tuple[GroupOps, int],
    y: tuple[GroupOps, int],
    ranks: tuple[int, int],
) -> bool:
    """Whether both ranks have ended both ops, and issued them in different orders."""
    orders = set()
    for rank in ranks:
        first, second = x[0].index(rank, x[1]), y[0].index(rank, y[1])
        if first is None or second is None:
            return False
        status = session.ranks[rank].ops.status
        if status[first] or status[second]:
            return False
        orders.add(first < second)
    return len(orders) == 2


def _say_crossing(
    session: Session, matched: Matched, it: _Crossing, ranks: Sequence[int]
) -> Finding:
    sides: dict[bool, list[tuple[OpRef, OpRef]]] = {True: [], False: []}
    for rank in ranks:
        x = matched.of(it.x).index(rank, it.x_seq)
        y = matched.of(it.y).index(rank, it.y_seq)
        if x is not None and y is not None:
            sides[x < y].append((OpRef(rank, x), OpRef(rank, y)))
    straight, odd = sorted(sides.values(), key=len, reverse=True)
    x_op, y_op = straight[0]
    if x_op.at > y_op.at:
        x_op, y_op = y_op, x_op
    differing = tuple(sorted(pair[0].rank for pair in odd))
    backends = {session.groups[group].backend.lower() for group in (it.x, it.y)}
    is_one_queue = any("nccl" in backend for backend in backends)
    evidence = []
    for side in (straight, odd):
        for pair in side[:2]:
            before, after = sorted(pair, key=lambda op: op.at)
            evidence += [
                called(session, before, f"{_say_op(session, before)}, first"),
                called(session, after, f"{_say_op(session, after)}, then"),
            ]
    others = [pair[0].rank for pair in straight]
    end = "this can deadlock" if is_one_queue else "legal here, a deadlock on NCCL"
    x_label, y_label = (session.groups[g].label for g in (it.x, it.y))
    return Finding(
        kind=FindingKind.ORDER_INVERSION,
        severity=Severity.WARNING if is_one_queue else Severity.NOTE,
        what=fit(
            f"{say_ranks(differing)} and {say_ranks(others, 4)} issue ops on groups '{x_label}' and "
            f"'{y_label}' in different orders",
            f": {end}",
        ),
        ranks=differing if len(odd) < len(straight) else tuple(sorted(ranks)),
        group=x_label,
        seq=it.x_seq,
        at_ns=session.time_ns(x_op.rank, _ops(session, x_op).issued_ns[x_op.at]),
        evidence=few(evidence),
        advice="issue the ops of the two groups in the same order on all ranks",
        numbers={"times": float(it.times)},
    )


def _say_op(session: Session, op: OpRef) -> str:
    return called(session, op).text


def _ops(session: Session, op: OpRef) -> Ops:
    return session.ranks[op.rank].ops
