"""How late each rank comes to the ops of a group. Numbers only; `straggler` says what they mean.

An op has three times: issued, started (all had arrived), ended. The first two show who waits for whom: the
rank that others wait for issues last, long after the median, and starts at once. The transfer, from
started to ended, makes nobody late.

A rank counts as late for an op where it arrives later than the median rank by more than

    1 ms,  and 4 times the distance from the first quartile to the median,  and the error of the clocks

so ranks that are scattered (jitter, more ranks than cores) are late for nothing: in a scatter the last
is no further off than the first. Where clocks of several hosts were never compared, a rank's time of
issue is taken against its own time of start, which was the same moment on all ranks. Ops during which some
rank sat in a debugger show nobody's lateness and are left out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter, sub
from typing import Final

from distdbg.diagnose.matching import GroupOps
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.record.entries import KIND_LABELS

#: Below this nothing is late, whatever the others do.
LEAST_LATE_NS: Final = 1_000_000
#: Fewer ops than this show nothing.
LEAST_OPS: Final = 16
_SPREADS: Final = 4
#: How many times of issue of one group are looked at, and of how many ops at least.
_MAX_TIMES: Final = 1_000_000
_LEAST_SEQS: Final = 256
_MAX_SEQS: Final = 4096
#: Their start is one moment on all ranks.
_MEETINGS: Final = frozenset(
    KIND_LABELS.index(kind)
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
)


@dataclass(slots=True)
class LateArrival:
    """One time at which a rank was late."""

    at: list[int] = field(default_factory=list)
    """Indexes into `Lateness.seqs`."""
    by_ns: list[int] = field(default_factory=list)
    cost_ns: list[int] = field(default_factory=list)
    """What all ranks that were not late would together have waited for it alone."""


@dataclass(slots=True)
class Lateness:
    """The late arrivals of the ranks of one group."""

    seqs: Sequence[int]
    """Those that were looked at."""
    every: float
    """How many ops stand behind one that was looked at."""
    ranks: list[int]
    late: dict[int, LateArrival]
    """By rank."""
    worst_ns: dict[int, int]
    """By index into `seqs`: how late the last rank was, where any was late."""
    clock_ns: Sequence[int]
    """When the first rank came, on the session's clock, for each of `seqs`."""


def measure(
    session: Session, group: int, ops: GroupOps, held: Sequence[tuple[int, int]] = ()
) -> Lateness | None:
    """None where there is too little to see. `held`: when somebody sat in a debugger (`debugged`)."""
    ranks = sorted(rank for rank in ops.by_rank if rank in session.ranks)
    if len(ranks) < 2:
        return None
    seqs = _choose(ops.common_seqs(), len(ranks), group)
    if len(seqs) < LEAST_OPS:
        return None
    error_ns = _clock_error(session, ranks)
    found = _columns(session, ops, ranks, seqs, held, by_start=error_ns is None)
    if found is None:
        return None
    seqs, columns, clock = found
    least = LEAST_LATE_NS + (error_ns or 0)
    late, worst = _compare(ranks, columns, least)
    every = len(ops.common_seqs()) / len(seqs)
    return Lateness(seqs, every, ranks, late, worst, clock)


def _choose(seqs: range, width: int, group: int) -> Sequence[int]:
    """All, or some at random: every tenth op would be the same line of the program each time."""
    most = min(_MAX_SEQS, max(_LEAST_SEQS, _MAX_TIMES // width))
    if len(seqs) <= most:
        return seqs
    return sorted(random.Random(group).sample(seqs, most))


def _clock_error(session: Session, ranks: Sequence[int]) -> int | None:
    """How far two clocks of these ranks may be apart; None: nobody knows."""
    logs = [session.ranks[rank] for rank in ranks]
    if len({log.host for log in logs}) == 1 and (logs[0].host or session.format == "distdbg"):
        return 0
    errors = [log.clock_error_ns for log in logs]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    return 2 * max(known)


def _columns(
    session: Session,
    ops: GroupOps,
    ranks: Sequence[int],
    seqs: Sequence[int],
    held: Sequence[tuple[int, int]],
    *,
    by_start: bool,
) -> tuple[Sequence[int], list[Sequence[int]], Sequence[int]] | None:
    """The times of each rank for the seqs that all have, and those of the first rank."""
    places = {rank: _places(ops, rank, seqs) for rank in ranks}
    gone = {
        at
        for found in places.values()
        if -1 in found
        for at, place in enumerate(found)
        if place < 0
    }
    if by_start:
        for rank, found in places.items():
            theirs = session.ranks[rank].ops
            kinds, starts = theirs.kind, theirs.started_ns
            gone |= {
                at
                for at, place in enumerate(found)
                if place < 0 or starts[place] == NEVER or kinds[place] not in _MEETINGS
            }
    for rank, found in places.items() if held else ():
        gone |= _held(session, rank, found, held)
    if gone:
        kept = [at for at in range(len(seqs)) if at not in gone]
        if len(kept) < LEAST_OPS:
            return None
        take = itemgetter(*kept)
        seqs = take(seqs)
        places = {rank: take(found) for rank, found in places.items()}
    columns: list[Sequence[int]] = []
    for rank, found in places.items():
        log = session.ranks[rank]
        times = _pick(log.ops.issued_ns, found)
        if by_start:
            times = list(map(sub, times, _pick(log.ops.started_ns, found)))
        elif log.offset_ns:
            times = list(map(log.offset_ns.__add__, times))
        columns.append(times)
    first = session.ranks[ranks[0]]
    clock = [first.offset_ns + t for t in _pick(first.ops.issued_ns, places[ranks[0]])]
    return seqs, columns, clock


def _held(
    session: Session, rank: int, places: Sequence[int], held: Sequence[tuple[int, int]]
) -> set[int]:
    """Those that a rank was in while somebody sat in a debugger: whose time that took is known."""
    log = session.ranks[rank]
    issued, started = log.ops.issued_ns, log.ops.started_ns
    found = set()
    for at, place in enumerate(places):
        if place >= 0:
            begin = issued[place] + log.offset_ns
            end = max(begin, started[place] + log.offset_ns) if started[place] != NEVER else begin
            if any(first <= end and begin <= last for first, last in held):
                found.add(at)
    return found


def _places(ops: GroupOps, rank: int, seqs: Sequence[int]) -> Sequence[int]:
    mine = ops.by_rank[rank]
    begin = seqs[0] - mine.first_seq
    if isinstance(seqs, range):
        return mine.indexes[begin : begin + len(seqs)]
    found: tuple[int, ...] = itemgetter(*[seq - mine.first_seq for seq in seqs])(mine.indexes)
    return found


def _pick(column: Sequence[int], places: Sequence[int]) -> Sequence[int]:
    if places[-1] - places[0] == len(places) - 1 and max(places) == places[-1]:
        return column[places[0] : places[-1] + 1]
    found: tuple[int, ...] = itemgetter(*places)(column)
    return found


def _compare(
    ranks: Sequence[int], columns: Sequence[Sequence[int]], least: int
) -> tuple[dict[int, LateArrival], dict[int, int]]:
    width = len(ranks)
    middle, quarter = (width - 1) // 2, (width - 1) // 4
    late: dict[int, LateArrival] = {}
    worst: dict[int, int] = {}
    for at, row in enumerate(zip(*columns, strict=True)):
        last = max(row)
        if last - min(row) <= least:
            continue
        ordered = sorted(row)
        typical = ordered[middle]
        bar = typical + max(least, _SPREADS * (typical - ordered[quarter]))
        if last <= bar:
            continue
        worst[at] = last - typical
        behind = [(index, time - typical) for index, time in enumerate(row) if time > bar]
        waiting = width - len(behind)
        for index, by_ns in behind:
            mine = late.setdefault(ranks[index], LateArrival())
            mine.at.append(at)
            mine.by_ns.append(by_ns)
            mine.cost_ns.append(by_ns * waiting)
    return late, worst
