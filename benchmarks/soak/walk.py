"""The program of every rank."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import distdbg as dist
from benchmarks.soak.audit import complaints, memory_kib, read_own_record, take_stock
from benchmarks.soak.draw import DTYPES, Draw, Step
from benchmarks.soak.messages import MESSAGES, OBJECTS
from benchmarks.soak.ops import COLLECTIVES, Started
from benchmarks.soak.pool import Alive, Pool

#: An op is waited for at most so many steps later.
_MOST_DELAY: Final = 8
#: One step in so many...
_CHANGES_GROUPS: Final = 250
_IS_CROSSED: Final = 25
_IS_MONITORED: Final = 1500
_CHANGES_LEVEL: Final = 400
_HAS_MARK: Final = 20
#: All ranks meet, so that the tags of messages from any source are used again in peace.
_MEET: Final = 10_000
#: How often the memory is looked at on the way, to see how it grew if it did.
_LOOKS: Final = 200

Check = Callable[[], None]


def soak(op_count: int, seed: int, early: int) -> dict[str, Any]:
    """Walk until `op_count` ops were called; take stock after `early` of them, and at the end."""
    dist.init_process_group()
    walk = Walk(seed)
    began = time.monotonic()
    walk.go(early)
    first = walk.stop()
    way = []
    for part in range(1, _LOOKS + 1):
        walk.go(early + (op_count - early) * part // _LOOKS)
        way.append(memory_kib()["RssAnon"])
    last = walk.stop()
    report = {
        "ops": walk.ops,
        "seconds": time.monotonic() - began,
        "kinds": dict(walk.kinds),
        "groups_made": walk.pool.made,
        "first": first.as_json(),
        "way": way,
        "last": last.as_json(),
        "complaints": complaints(read_own_record()),
    }
    dist.destroy_process_group()
    return report


class Walk:
    """One rank on its way."""

    def __init__(self, seed: int) -> None:
        self._common = random.Random(seed)
        # What this rank decides alone.
        self._own = random.Random(f"{seed} {dist.get_rank()}")
        self._me = dist.get_rank()
        self._number = 0
        self._under_way: list[tuple[int, Any, Check]] = []
        self._is_level_changed = False
        self.pool = Pool()
        self.ops = 0
        self.kinds: Counter[str] = Counter()

    def go(self, op_count: int) -> None:
        while self.ops < op_count:
            self._step()

    def stop(self) -> Any:
        """Come to rest, and look."""
        self._wait_for(self._under_way)
        self._under_way = []
        self.pool.destroy_all()
        for _ in range(
            2
        ):  # the keys of the last one and a half stay until the next: then always alike
            dist.monitored_barrier()
        return take_stock()

    def _step(self) -> None:
        self._number += 1
        draw = Draw(self._common)
        if draw.chance(_CHANGES_GROUPS):
            # Its ops are over on this rank; on others they may still be under way.
            self._wait_for(self._under_way)
            self._under_way = []
            self.pool.change(draw)
        elif draw.chance(_IS_CROSSED):
            self._cross(draw)
        else:
            self._one(draw)
        self._own_business()
        if self._number % _MEET == 0:
            dist.barrier()

    def _one(self, draw: Draw) -> None:
        alive = draw.choice(self.pool.alive)
        if draw.chance(_IS_MONITORED):
            self._count("monitored_barrier")
            if alive.group is not None:
                dist.monitored_barrier(alive.group)
            return
        family = (COLLECTIVES, COLLECTIVES, COLLECTIVES, COLLECTIVES, MESSAGES, MESSAGES, OBJECTS)
        start = draw.choice(draw.choice(family))
        self._count(start.__name__)
        step = self._step_on(alive, draw, is_async=draw.chance(2))
        if step is None:
            return
        if self._own.random() < 1 / _HAS_MARK:
            with dist.span(start.__name__):
                self._take(step, start(step))
        else:
            self._take(step, start(step))

    def _cross(self, draw: Draw) -> None:
        """Ops on several groups at once, started by each rank in an order of its own."""
        plans = []
        for alive in self.pool.alive[: 2 + draw.below(3)]:
            start, seed = draw.choice(COLLECTIVES), draw.below(1 << 40)
            self._count(f"crossed {start.__name__}")
            step = self._step_on(alive, Draw(random.Random(seed)), is_async=True)
            if step is not None:
                plans.append((step, start))
        self._own.shuffle(plans)
        for step, start in plans:
            self._take(step, start(step))

    def _step_on(self, alive: Alive, draw: Draw, *, is_async: bool) -> Step | None:
        if alive.group is None:
            return None
        return Step(
            number=self._number,
            draw=draw,
            group=alive.group,
            ranks=alive.ranks,
            rank=alive.ranks.index(self._me),
            is_async=is_async,
            dtype=draw.choice(DTYPES),
        )

    def _take(self, step: Step, started: Started) -> None:
        work, check = started
        if work is None:
            check()
        else:
            due = self._number + self._own.randrange(_MOST_DELAY)
            self._under_way.append((due, work, check))

    def _own_business(self) -> None:
        due = [item for item in self._under_way if item[0] <= self._number]
        if due:
            self._under_way = [item for item in self._under_way if item[0] > self._number]
            self._wait_for(due)
        chance = self._own.random()
        if self._is_level_changed:
            if chance < 20 / _CHANGES_LEVEL:
                dist.set_debug_level(dist.DebugLevel.DETAIL)
                self._is_level_changed = False
        elif chance < 1 / _CHANGES_LEVEL:
            dist.set_debug_level(self._own.choice([dist.DebugLevel.OFF, dist.DebugLevel.INFO]))
            self._is_level_changed = True
        elif chance > 1 - 1 / _HAS_MARK:
            dist.mark("step", self._number)

    def _wait_for(self, items: list[tuple[int, Any, Check]]) -> None:
        for _, work, check in self._own.sample(items, len(items)):
            work.wait()
            check()

    def _count(self, kind: str) -> None:
        self.ops += 1
        self.kinds[kind] += 1
