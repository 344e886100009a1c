"""`python -m benchmarks.wait_graph`: how long it takes to tell who can never go on.

Nodes are ranks of one job, one wait each. Times are of `distdbg.diagnose.graph.find_deadlocks` alone, in one
process, on its own CPU time; the lists are made before.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random

from benchmarks.table import align
from distdbg.diagnose.graph import UnresolvableWaits, WaitFor, find_deadlocks

Waits = Mapping[int, Sequence[WaitFor]]
COLLECTIVE = 4096


def one_ring(count: int) -> Waits:
    """Each receives from the next."""
    return {i: [WaitFor(((i + 1) % count,))] for i in range(count)}


def rings_of_four(count: int) -> Waits:
    return {i: [WaitFor((i // 4 * 4 + (i + 1) % 4,))] for i in range(count // 4 * 4)}


def chain_onto_a_pair(count: int) -> Waits:
    """Each receives from the next, the last two from each other."""
    return {i: [WaitFor((i + 1 if i < count - 1 else i - 1,))] for i in range(count)}


def chain_onto_who_computes(count: int) -> Waits:
    return {i: [WaitFor((i + 1,))] for i in range(count)}


def collectives_in_a_ring(count: int) -> Waits:
    """Groups of 4,096, half of each waits for its other half, which waits in the next group."""
    half = COLLECTIVE // 2
    parts = [tuple(range(low, low + half)) for low in range(0, count, half)]
    waits: dict[int, list[WaitFor]] = {}
    for at, part in enumerate(parts):
        wait = WaitFor(parts[(at + 1) % len(parts)])
        waits.update((i, [wait]) for i in part)
    return waits


def collectives_for_one_each(count: int) -> Waits:
    """All of a group of 4,096 wait for its first rank, which waits for the first of the next group."""
    waits: dict[int, list[WaitFor]] = {}
    for low in range(0, count, COLLECTIVE):
        wait = WaitFor((low,))
        waits.update((i, [wait]) for i in range(low + 1, min(low + COLLECTIVE, count)))
        waits[low] = [WaitFor(((low + COLLECTIVE) % (count // COLLECTIVE * COLLECTIVE),))]
    return waits


def knots_of_any(count: int) -> Waits:
    """Pairs of neighbours in a ring, each waits for a message from either."""
    return {i: [WaitFor(((i - 1) % count, (i + 1) % count), True)] for i in range(count)}


def all_from_any(count: int) -> Waits:
    """Groups of 4,096 whose ranks all receive from any other."""
    waits: dict[int, list[WaitFor]] = {}
    for low in range(0, count, COLLECTIVE):
        members = tuple(range(low, min(low + COLLECTIVE, count)))
        waits.update((i, [WaitFor(members, True)]) for i in members)
    return waits


def drawn_for_all(count: int) -> Waits:
    """Each waits for all of three."""
    random = Random(1)
    return {i: [WaitFor(tuple(random.randrange(count) for _ in range(3)))] for i in range(count)}


def drawn_for_any_or_all(count: int) -> Waits:
    random = Random(1)
    return {
        i: [WaitFor(tuple(random.randrange(count) for _ in range(3)), random.random() < 0.5)]
        for i in range(count)
    }


SHAPES: Sequence[Callable[[int], Waits]] = (
    one_ring,
    rings_of_four,
    chain_onto_a_pair,
    chain_onto_who_computes,
    collectives_in_a_ring,
    collectives_for_one_each,
    knots_of_any,
    all_from_any,
    drawn_for_all,
    drawn_for_any_or_all,
)


def measure(waits: Waits) -> tuple[float, UnresolvableWaits[int]]:
    gc.collect()
    began = time.process_time()
    deadlocks = find_deadlocks(waits)
    return time.process_time() - began, deadlocks


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wait_graph", description=__doc__)
    parser.add_argument("--ranks", type=int, default=100_000)
    args = parser.parse_args(argv)
    rows = [["shape", "ranks", "seconds", "deadlocked", "cores", "in the first"]]
    for shape in SHAPES:
        waits = shape(args.ranks)
        seconds, deadlocks = measure(waits)
        first = str(len(deadlocks.cores[0])) if deadlocks.cores else "-"
        rows.append(
            [
                shape.__name__.replace("_", " "),
                f"{len(waits):,}",
                f"{seconds:.2f}",
                f"{len(deadlocks.deadlocked):,}",
                f"{len(deadlocks.cores):,}",
                first,
            ]
        )
    print(align(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
