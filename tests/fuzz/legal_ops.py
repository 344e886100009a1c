"""Random programs without a mistake: no rank may warn of anything in them.

    python tests/fuzz/legal_ops.py --ops=1000000 --seed=7

All ranks draw the same ops from one seed; each draws by itself how and in which order it waits, what it
reads while ops are in flight, and what it writes afterwards.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import distdbg as dist

_MOST_IN_FLIGHT = 12
_ALPHABET = (
    "reduce", "reduce_twice", "gather", "scatter", "broadcast", "ring", "fan", "batch", "coalesced", "sync",
    "group", "anyone", "methods", "wait", "wait", "wait",
)  # fmt: skip


class LegalRank:
    """One rank of such a program."""

    def __init__(self, seed: int) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.common = random.Random(seed)
        self.own = random.Random(f"{seed} {self.rank}")
        self.groups: list[Any] = [None, dist.new_group(), dist.new_group()]
        #: What is in flight, with the arrays that are the op's until it was waited for.
        self.in_flight: list[tuple[Any, list[np.ndarray[Any, Any]]]] = []

    def step(self) -> None:
        """One op, or one wait."""
        what = self.common.choice(_ALPHABET)
        if len(self.in_flight) >= _MOST_IN_FLIGHT:
            self.wait_for_some(_MOST_IN_FLIGHT // 2)
        steps: dict[str, Callable[[], None]] = {
            "reduce": self.reduce, "reduce_twice": self.reduce_twice, "gather": self.gather,
            "scatter": self.scatter, "broadcast": self.broadcast, "ring": self.ring, "fan": self.fan,
            "batch": self.batch, "coalesced": self.coalesced, "sync": self.sync,
            "group": self.make_group, "anyone": self.from_anyone, "methods": self.methods,
            "wait": self.wait_for_one,
        }  # fmt: skip
        steps[what]()
        if self.in_flight and self.own.random() < 0.3:
            sum(float(array.sum()) for array in self.own.choice(self.in_flight)[1][:1])

    # ----------------------------------------------------------------------------- ops

    def array(self, scale: int = 1) -> np.ndarray[Any, Any]:
        """A new one, of a size that all ranks draw alike."""
        return np.ones(scale * self.common.choice((1, 3, 64, 3000)))

    def group(self) -> Any:
        return self.common.choice(self.groups)

    def keep(self, work: Any, *arrays: np.ndarray[Any, Any]) -> None:
        self.in_flight.append((work, list(arrays)))

    def reduce(self) -> None:
        array = self.array()
        self.keep(dist.all_reduce(array, group=self.group(), async_op=True), array)

    def reduce_twice(self) -> None:
        """The ops of one group run in order, so one array in two of them is well defined."""
        array, group = self.array(), self.group()
        first = dist.all_reduce(array, group=group, async_op=True)
        second = dist.broadcast(array, 0, group=group, async_op=True)
        self.in_flight.append(([first, second], [array]))

    def gather(self) -> None:
        array = self.array()
        out = np.empty(self.size * array.size)
        self.keep(
            dist.all_gather_into_tensor(out, array, group=self.group(), async_op=True), array, out
        )

    def scatter(self) -> None:
        out = self.array()
        array = np.ones(self.size * out.size)
        group = self.group()
        self.keep(dist.reduce_scatter_tensor(out, array, group=group, async_op=True), array, out)

    def broadcast(self) -> None:
        array = self.array()
        root = self.common.randrange(self.size)
        self.keep(dist.broadcast(array, root, group=self.group(), async_op=True), array)

    def ring(self) -> None:
        array, back = self.array(), np.empty(0)
        back = np.empty_like(array)
        tag, group = self.common.randrange(3), self.group()
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.keep(dist.isend(array, right, tag=tag, group=group), array)
        self.keep(dist.irecv(back, left, tag=tag, group=group), back)

    def fan(self) -> None:
        """One array is sent to all others at once."""
        root = self.common.randrange(self.size)
        array, group = self.array(), self.group()
        if self.rank == root:
            others = [rank for rank in range(self.size) if rank != root]
            works: list[Any] = [dist.isend(array, rank, tag=5, group=group) for rank in others]
            self.in_flight.append((works, [array]))
        else:
            self.keep(dist.irecv(array, root, tag=5, group=group), array)

    def batch(self) -> None:
        array = self.array()
        back = np.empty_like(array)
        peers = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.irecv, back, peers[1], tag=6),
                dist.P2POp(dist.isend, array, peers[0], tag=6),
            ]
        )
        self.in_flight.append((list(works), [array, back]))

    def coalesced(self) -> None:
        arrays = [self.array(), self.array()]
        self.keep(dist.all_reduce_coalesced(arrays, async_op=True), *arrays)
        with dist._coalescing_manager(async_ops=True) as block:
            others = [self.array() for _ in range(3)]
            for array in others:
                dist.all_reduce(array)
        self.keep(block, *others)

    def sync(self) -> None:
        dist.all_reduce(self.array(), group=self.group())
        dist.barrier(group=self.group())

    def make_group(self) -> None:
        """One that is kept for a while, and another that is used once."""
        once = dist.new_group()
        dist.all_reduce(self.array(), group=once)
        dist.destroy_process_group(once)

    def from_anyone(self) -> None:
        array = self.array()
        if self.rank == 0:
            whose = [dist.recv(array, tag=7) for _ in range(self.size - 1)]
            assert sorted(whose) == list(range(1, self.size))
        else:
            dist.send(array, 0, tag=7)
        dist.barrier()

    def methods(self) -> None:
        array = self.array()
        world = dist.group.WORLD
        assert world is not None
        self.keep(world.allreduce([array]), array)

    # ---------------------------------------------------------------------------- waits

    def wait_for_one(self) -> None:
        """Each rank another one: all that it needs was begun before."""
        if self.in_flight:
            self.end(*self.in_flight.pop(self.own.randrange(len(self.in_flight))))

    def wait_for_some(self, left: int) -> None:
        self.own.shuffle(self.in_flight)
        while len(self.in_flight) > left:
            self.end(*self.in_flight.pop())

    def end(self, work: Any, arrays: list[np.ndarray[Any, Any]]) -> None:
        for each in work if isinstance(work, list) else [work]:
            self.wait(each)
        for array in arrays:
            array += self.own.random()

    def wait(self, work: Any) -> None:
        how = self.own.randrange(5)
        if how == 0 and hasattr(work, "get_future"):
            work.get_future().wait()
        elif how == 1 and hasattr(work, "synchronize"):
            work.synchronize()
        elif how == 2 and hasattr(work, "is_completed"):
            while not work.is_completed():
                pass
        else:
            work.wait()


def _run_rank(seed: int, ops: int) -> None:
    rank = LegalRank(seed)
    for _ in range(ops):
        rank.step()
    rank.wait_for_some(0)


def run(seed: int, ops: int, ranks: int) -> list[str]:
    """Run one program of so many steps; returns the warnings."""
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("ignore")  # NumPy's, of what is in arrays that nobody has filled
        warnings.simplefilter("always", dist.LatentWarning)
        dist.run_threads(_run_rank, ranks, seed, ops, timeout_s=600)
    return [str(warning.message) for warning in reported]


def main() -> int:
    """Run programs until so many ops were issued."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    done, seed = 0, chosen.seed
    while done < chosen.ops:
        count, ranks = 2000, 2 + seed % 3
        reported = run(seed, count, ranks)
        if reported:
            print(f"seed {seed}, {ranks} ranks: {reported[0]}", file=sys.stderr)
            return 1
        done += count * ranks
        seed += 1
        print(f"{done} ops, no warning", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
