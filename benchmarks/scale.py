"""`python -m benchmarks.scale`: how the cost of an op grows with the number of ranks.

barrier and all_reduce of 8 B and 64 KiB on 2 to 64 ranks of this machine, beside what the algorithm
says. With more ranks than cores every rank needs its turn on a core in each op, so on C cores the cost
of n ranks cannot fall below n/C turns: `turns` is that number, and `per turn` has to stay flat (or
fall) where the growth is the algorithm's and not a fault of ours.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from math import ceil
from statistics import median

from benchmarks.cases import Case, format_seconds, format_size
from benchmarks.launch import run_ranks
from benchmarks.machine import describe_machine
from benchmarks.measure import Limits
from benchmarks.peers import find_peer
from benchmarks.table import align

CASES = (Case("barrier", 0), Case("all_reduce", 8), Case("all_reduce", 64 << 10))
WORLD_SIZES = (2, 4, 8, 16, 32, 64)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--ranks", default=",".join(map(str, WORLD_SIZES)), help="world sizes")
    parser.add_argument("--library", default="distdbg")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes in each")
    args = parser.parse_args(argv)
    # Turned into an exception, so that the ranks are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    peer = find_peer(args.library)
    if peer.gap is not None:
        print(f"gap: {peer.name}: {peer.gap}")
        return 1
    cores = len(os.sched_getaffinity(0))
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print(f"{peer.name:<17} {peer.version}\n")
    world_sizes = [int(text) for text in args.ranks.split(",")]
    seconds: dict[tuple[int, Case], list[float]] = {}
    for _ in range(args.rounds):
        for world_size in world_sizes:
            start = peer.start(world_size, cores)
            limits = Limits(case_s=0.5, block_s=0.05, warmup_s=0.02)
            outcome = run_ranks(peer.name, start, world_size, CASES, limits)
            for line in outcome.lines:
                key = (world_size, Case(line["kind"], line["nbytes"]))
                seconds.setdefault(key, []).append(median(line["times_s"]))
            if outcome.error is not None:
                print(f"gap: {world_size} ranks: {outcome.error}")
    medians = {key: median(times) for key, times in seconds.items()}
    print(format_growth(medians, world_sizes, cores))
    return 0


def format_growth(
    medians: dict[tuple[int, Case], float], world_sizes: Sequence[int], cores: int
) -> str:
    """One block for each case: time, time per turn, and growth since the line before."""
    blocks = []
    for case in CASES:
        lines = [["ranks", "time", "turns", "per turn", "growth", "growth of turns"]]
        before: tuple[int, float] | None = None
        for world_size in world_sizes:
            if (world_size, case) not in medians:
                continue
            time = medians[world_size, case]
            turns = ceil(world_size / cores)
            cells = [str(world_size), format_seconds(time), str(turns), format_seconds(time / turns)]
            if before is None:
                cells += ["", ""]
            else:
                cells += [f"{time / before[1]:.2f}x", f"{turns / before[0]:.2f}x"]
            lines.append(cells)
            before = (turns, time)
        size = f" of {format_size(case.nbytes)}" if case.nbytes else ""
        blocks.append(f"{case.kind}{size}\n{align(lines, left=())}")
    return "\n\n".join(blocks)


if __name__ == "__main__":
    sys.exit(main())
