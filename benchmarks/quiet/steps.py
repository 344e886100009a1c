"""The steps of the random programs: all ranks draw the same, and each is right in itself.

A step may take a pause of one rank anywhere; nothing but time comes of it. No rank is slow again and
again: such a one is a straggler, and rightly called so.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

import distdbg as dist
from benchmarks.quiet.pauses import PAUSES, is_stopped
from distdbg import ProcessGroup

MOST_PAUSE_S = 3.0


@dataclass(slots=True)
class Team:
    """A group, with its ranks; None where this rank is not in it."""

    ranks: tuple[int, ...]
    group: ProcessGroup | None


@dataclass(slots=True)
class Walk:
    """One rank on its way."""

    rank: int
    size: int
    teams: list[Team] = field(default_factory=list)
    evaluation: ProcessGroup | None = None

    def make_groups(self) -> None:
        """World, pairs in a ring, those of even rank, a half; one for evaluation."""
        world = dist.group.WORLD
        self.teams = [Team(tuple(range(self.size)), world)]
        parts = [{at, (at + 1) % self.size} for at in range(self.size)]
        parts += [set(range(0, self.size, 2)), set(range((self.size + 1) // 2))]
        for part in parts:
            ranks = tuple(sorted(part))
            made = dist.new_group(list(ranks))
            self.teams.append(Team(ranks, made if self.rank in ranks else None))
        self.evaluation = dist.new_group(group_desc="evaluation")

    def own(self, team: Team) -> ProcessGroup | None:
        return team.group if self.rank in team.ranks else None

    def pause(self, draw: random.Random, one_in: int = 2) -> None:
        """One of the ranks, or none, is busy with something."""
        who, name = draw.randrange(self.size), draw.choice(sorted(PAUSES))
        seconds = draw.choice((0.05, 0.4, 1.0, 2.0, MOST_PAUSE_S))
        if draw.randrange(one_in) == 0 and who == self.rank:
            PAUSES[name](seconds)


Step = Callable[[Walk, random.Random], None]


def _op(group: ProcessGroup, ranks: tuple[int, ...], kind: int, async_op: bool = False) -> object:
    x = np.ones(64)
    if kind == 0:
        return dist.all_reduce(x, group=group, async_op=async_op)
    if kind == 1:
        return dist.broadcast(x, src=ranks[-1], group=group, async_op=async_op)
    if kind == 2:
        out = [np.zeros(64) for _ in ranks]
        return dist.all_gather(out, x, group=group, async_op=async_op)
    if kind == 3:
        return dist.reduce(x, dst=ranks[0], group=group, async_op=async_op)
    return dist.barrier(group=group, async_op=async_op)


def collectives(walk: Walk, draw: random.Random) -> None:
    """On groups that overlap, in one order."""
    for _ in range(draw.randrange(3, 40)):
        team, kind = draw.choice(walk.teams), draw.randrange(5)
        group = walk.own(team)
        if group is not None:
            _op(group, team.ranks, kind)
        walk.pause(draw, 12)


def late_waits(walk: Walk, draw: random.Random) -> None:
    """Ops that are begun, and waited for in any order, after other work."""
    works = []
    for _ in range(draw.randrange(2, 12)):
        team, kind = draw.choice(walk.teams), draw.randrange(5)
        group = walk.own(team)
        if group is not None:
            works.append(_op(group, team.ranks, kind, async_op=True))
        walk.pause(draw, 12)
    walk.pause(draw)
    random.Random(walk.rank).shuffle(works)
    for work in works:
        work.wait()  # type: ignore[attr-defined]


def pipeline(walk: Walk, draw: random.Random) -> None:
    """Stages that take a batch and hand it on."""
    x = np.ones(256)
    for batch in range(draw.randrange(2, 8)):
        slow, seconds = draw.randrange(walk.size), draw.choice((0.0, 0.05, 0.5))
        if walk.rank > 0:
            dist.recv(x, src=walk.rank - 1, tag=batch)
        if walk.rank == slow:
            time.sleep(seconds)
        if walk.rank < walk.size - 1:
            dist.send(x, dst=walk.rank + 1, tag=batch)
    walk.pause(draw)


def ring(walk: Walk, draw: random.Random) -> None:
    """Each sends to the right and receives from the left, in one batch or with isend."""
    right, left = (walk.rank + 1) % walk.size, (walk.rank - 1) % walk.size
    x, y = np.ones(128), np.zeros(128)
    for _ in range(draw.randrange(1, 20)):
        works = [dist.isend(x, right), dist.irecv(y, left)]
        walk.pause(draw, 20)
        for work in works:
            assert work is not None
            work.wait()


def whoever(walk: Walk, draw: random.Random) -> None:
    """Rank 0 takes what comes, from anybody, late; then answers them."""
    x = np.ones(16)
    walk.pause(draw)
    if walk.rank == 0:
        senders = [dist.recv(x) for _ in range(walk.size - 1)]
        for sender in senders:
            assert sender is not None
            dist.send(x, sender)
    else:
        time.sleep(random.Random(walk.rank + draw.randrange(99)).choice((0, 0.1, 0.6, 1.2)))
        dist.send(x, 0)
        dist.recv(x, 0)


def checkpoint(walk: Walk, draw: random.Random) -> None:
    """Rank 0 saves, the others wait."""
    seconds = draw.uniform(0.5, MOST_PAUSE_S)
    if walk.rank == 0:
        PAUSES["writes"](seconds)
    dist.barrier()


def uneven(walk: Walk, draw: random.Random) -> None:
    """All compute, each for a time of its own."""
    names = sorted(PAUSES)
    own = random.Random(draw.randrange(1 << 30) + walk.rank)
    for _ in range(draw.randrange(1, 4)):
        PAUSES[own.choice(names)](own.choice((0.01, 0.1, 0.5, 1.5)))
        dist.all_reduce(np.ones(1000))


def waits_for_one(walk: Walk, draw: random.Random) -> None:
    """One is busy with one thing, for longer than it takes to look at it."""
    name, who = draw.choice(sorted(PAUSES)), draw.randrange(walk.size)
    if walk.rank == who:
        PAUSES[name](MOST_PAUSE_S)
    dist.all_reduce(np.ones(4))


def evaluates(walk: Walk, draw: random.Random) -> None:
    """A second thread has a group of its own."""
    counts = draw.randrange(3, 30), draw.randrange(3, 30)
    pause_s, group = draw.choice((0.0, 0.02, 0.2)), walk.evaluation
    own = random.Random(draw.randrange(1 << 30) + walk.rank)

    def evaluate() -> None:
        for _ in range(counts[0]):
            dist.all_reduce(np.ones(8), group=group)
            time.sleep(own.choice((0, 0, pause_s)))

    thread = threading.Thread(target=evaluate)
    thread.start()
    for _ in range(counts[1]):
        dist.all_reduce(np.ones(8))
        time.sleep(own.choice((0, 0, 0.05)))  # not in Python: that would keep the thread late
    thread.join()


def ends_a_group(walk: Walk, draw: random.Random) -> None:
    """A group that some make, use and end, while the others are elsewhere."""
    count = draw.randrange(1, walk.size + 1)
    ranks = tuple(sorted(draw.sample(range(walk.size), count)))
    is_local = draw.random() < 0.5
    group = None
    if walk.rank in ranks or not is_local:
        group = dist.new_group(list(ranks), use_local_synchronization=is_local)
    walk.pause(draw)
    if walk.rank in ranks and group is not None:
        for _ in range(3):
            dist.all_reduce(np.ones(4), group=group)
        dist.destroy_process_group(group)


def monitored(walk: Walk, draw: random.Random) -> None:
    """A monitored barrier to which one comes late."""
    walk.pause(draw)
    dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=draw.random() < 0.5)


def stopped(walk: Walk, draw: random.Random) -> None:
    """One is stopped for a second, and goes on."""
    if walk.rank == draw.randrange(walk.size):
        is_stopped(draw.choice((0.3, 1.0, 2.0)))
    dist.all_reduce(np.ones(4))


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        collectives,
        late_waits,
        pipeline,
        ring,
        whoever,
        checkpoint,
        uneven,
        waits_for_one,
        evaluates,
        ends_a_group,
        monitored,
        stopped,
    )
}
