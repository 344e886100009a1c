"""Sums over the last ops of all ranks: who was late, and who waited for whom. Pure.

The last to come to an op is who the others waited for; what they waited is counted for it. Looked at are
the last ops of each rank, so that the largest run takes a second; how many they were is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.ops import NEVER, NONE
from distdbg.diagnose.session import Session
from distdbg.record.format import NO_COLLECTIVE, Flag
from distdbg.render.where import gave_up
from distdbg.render.words import ranks_text

_MAX_OPS: Final = 400_000
#: Ranks that a table or a chart has room for.
MAX_LANES: Final = 64
#: As many again in a table of lanes by lanes.
MAX_FOLDED: Final = 32


@dataclass(slots=True, kw_only=True)
class RankLateness:
    """How late one rank came to the ops that it shares with others."""

    rank: int
    count: int = 0
    was_last: int = 0
    sum_ns: int = 0
    """Behind the first of each op."""
    worst_ns: int = 0
    cost_ns: int = 0
    """What the others would have been spared, had it come with the last but one."""

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0


@dataclass(slots=True, kw_only=True)
class Waits:
    """Nanoseconds, by lane of who waited and lane of whom it waited for."""

    lanes: list[TimelineLane]
    ns: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, waiter: int, on: int, ns: int) -> None:
        if ns > 0:
            self.ns[waiter, on] = self.ns.get((waiter, on), 0) + ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLane:
    """One rank, or those of a host."""

    label: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCollective:
    """One collective that all known members came to."""

    group: int
    seq: int
    issued: Sequence[tuple[int, int]]
    """Time and rank, the first to come first."""


def meetings(session: Session, most_ops: int = _MAX_OPS) -> Iterator[SharedCollective]:
    """The last collectives of a session that are whole, in no order."""
    per_rank = max(16, most_ops // max(1, len(session.ranks)))
    members = [
        sum(rank in session.ranks for rank in session.members(g))
        for g in range(len(session.groups))
    ]
    came: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for rank, log in session.ranks.items():
        ops, offset = log.ops, log.offset_ns
        first = max(0, len(ops) - per_rank)
        columns = (ops.group[first:], ops.seq[first:], ops.flags[first:], ops.issued_ns[first:])
        for group, seq, flags, issued in zip(*columns, strict=True):
            if group != NONE and not flags & NO_COLLECTIVE:
                came.setdefault((group, seq), []).append((issued + offset, rank))
    for (group, seq), issued_by in came.items():
        if len(issued_by) == members[group] > 1:
            issued_by.sort()
            yield SharedCollective(group=group, seq=seq, issued=issued_by)


def lateness(found: Iterable[SharedCollective]) -> list[RankLateness]:
    """By rank; those that came to nothing whole are not there."""
    late: dict[int, RankLateness] = {}
    for meeting in found:
        first = meeting.issued[0][0]
        for issued, rank in meeting.issued:
            one = late.get(rank)
            if one is None:
                one = late[rank] = RankLateness(rank=rank)
            one.count += 1
            behind = issued - first
            one.sum_ns += behind
            one.worst_ns = max(one.worst_ns, behind)
        (before, _), (last, rank) = meeting.issued[-2:]
        late[rank].was_last += last > first
        late[rank].cost_ns += last - before
    return [late[rank] for rank in sorted(late)]


def choose_lanes(
    session: Session,
    first: Iterable[int] = (),
    late: Sequence[RankLateness] = (),
    most: int = MAX_LANES,
) -> list[TimelineLane]:
    """All ranks; where they are too many, `first`, the latest, and some from all over the job."""
    ranks = sorted(session.ranks)
    if len(ranks) <= most:
        return [_lane(rank) for rank in ranks]
    latest = sorted(late, key=lambda one: -one.cost_ns)[: most // 4]
    wanted = dict.fromkeys(r for r in first if r in session.ranks)
    chosen = [*wanted][: most // 2]
    chosen += [one.rank for one in latest if one.rank not in wanted]
    step = len(ranks) / (most - len(chosen))
    taken = set(chosen)
    for i in range(most - len(chosen)):
        rank = ranks[int(i * step)]
        if rank not in taken:
            taken.add(rank)
    # Those to blame on top: the others are only some.
    return [_lane(rank) for rank in sorted(taken, key=lambda rank: (rank not in wanted, rank))]


def fold_lanes(
    session: Session, first: Iterable[int] = (), most: int = MAX_FOLDED
) -> list[TimelineLane]:
    """A lane for every rank of the session, by host or by runs of ranks where there are too many."""
    ranks = sorted(session.ranks)
    if len(ranks) <= most:
        return [_lane(rank) for rank in ranks]
    alone = [rank for rank in dict.fromkeys(first) if rank in session.ranks][: most // 4]
    rest = [rank for rank in ranks if rank not in set(alone)]
    hosts: dict[str, list[int]] = {}
    for rank in rest:
        hosts.setdefault(session.ranks[rank].host, []).append(rank)
    lanes = [_lane(rank) for rank in sorted(alone)]
    if 1 < len(hosts) <= most - len(alone):
        return lanes + [
            TimelineLane(label=host or "an unnamed host", ranks=tuple(members))
            for host, members in hosts.items()
        ]
    size = -(-len(rest) // (most - len(alone)))
    for at in range(0, len(rest), size):
        members = rest[at : at + size]
        lanes.append(
            TimelineLane(
                label=f"{ranks_text([members[0], members[-1]])}".replace(",", " to "),
                ranks=tuple(members),
            )
        )
    return lanes


def waits(session: Session, found: Iterable[SharedCollective], lanes: list[TimelineLane]) -> Waits:
    """Seconds of ranks: what has been waited in `found`, and what is being waited now, or was in vain."""
    lane_of = {rank: i for i, lane in enumerate(lanes) for rank in lane.ranks}
    total = Waits(lanes=lanes)
    for meeting in found:
        last, guilty = meeting.issued[-1]
        on = lane_of.get(guilty)
        if on is None:
            continue
        for issued, rank in meeting.issued:
            waiter = lane_of.get(rank)
            if waiter is not None and rank != guilty:
                total.add(waiter, on, last - issued)
    _add_waits_of_now(session, lane_of, total)
    return total


def _add_waits_of_now(session: Session, lane_of: Mapping[int, int], total: Waits) -> None:
    absent: dict[tuple[int, int], set[int]] = {}
    for rank, log in session.ranks.items():
        waiter = lane_of.get(rank)
        if waiter is None:
            continue
        ops = log.ops
        failed = gave_up(log)
        for at in [*ops.in_flight(), *([] if failed is None else [failed])]:
            until = session.time_ns(rank, ops.ended_ns[at])
            until = session.now_ns if until == NEVER else until
            ns = until - session.time_ns(rank, ops.issued_ns[at])
            group, seq = ops.group[at], ops.seq[at]
            if ops.flags[at] & Flag.MESSAGE:
                on = {lane_of[ops.peer[at]]} if ops.peer[at] in lane_of else set()
            elif ops.flags[at] & Flag.ASIDE or group == NONE:
                continue
            else:
                if (group, seq) not in absent:
                    absent[group, seq] = {
                        lane_of[r] for r in _absent(session, group, seq) if r in lane_of
                    }
                on = absent[group, seq]
            for lane in on:
                total.add(waiter, lane, ns)


def _absent(session: Session, group: int, seq: int) -> Iterator[int]:
    for rank in session.members(group):
        log = session.ranks.get(rank)
        far = log.progress.get(group) if log is not None else None
        if far is not None and far.issued_seq < seq:
            yield rank


def _lane(rank: int) -> TimelineLane:
    return TimelineLane(label=f"rank {rank}", ranks=(rank,))
