"""`python -m benchmarks.scale`: how the cost of an op grows with the number of ranks.

barrier and all_reduce of 8 B and 64 KiB on 2 to 64 ranks of this machine. Beside each time stands what
the plans of that op predict (`distdbg.runtime.plan.compare`) for as many ranks on these cores. The
prediction is no clock, so growth is compared with growth, each since the line before: `over` is the
measured growth over the predicted one. Where it stays at 1 or below, the cost grows no faster than the
algorithm says.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.cases import Case, format_seconds, format_size
from benchmarks.launch import run_ranks
from benchmarks.machine import describe_machine
from benchmarks.measure import Limits
from benchmarks.peers import find_peer
from benchmarks.table import align

CASES = (Case("barrier", 0), Case("all_reduce", 8), Case("all_reduce", 64 << 10))
WORLD_SIZES = (2, 4, 8, 16, 32, 64)
SLOT_NBYTES = 256 << 10

Times = Mapping[tuple[int, Case], float]
"""(ranks, case) -> seconds per op."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--ranks", default=",".join(map(str, WORLD_SIZES)), help="world sizes")
    parser.add_argument("--library", dest="peer", default="distdbg")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes in each")
    args = parser.parse_args(argv)
    # Turned into an exception, so that the ranks are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    peer = find_peer(args.peer)
    if peer.gap is not None:
        print(f"gap: {peer.name}: {peer.gap}")
        return 1
    cores = len(os.sched_getaffinity(0))
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print(f"{peer.name:<17} {peer.version}\n", flush=True)
    world_sizes = [int(text) for text in args.ranks.split(",")]
    limits = Limits(case_s=0.5, block_s=0.05, warmup_s=0.02)
    seconds: dict[tuple[int, Case], list[float]] = {}
    for _ in range(args.rounds):
        for world_size in world_sizes:
            start = peer.start(world_size, cores)
            outcome = run_ranks(peer.name, start, world_size, CASES, limits)
            for line in outcome.lines:
                key = (world_size, Case(line["kind"], line["nbytes"]))
                seconds.setdefault(key, []).append(median(line["times_s"]))
            if outcome.error is not None:
                print(f"gap: {world_size} ranks: {outcome.error}")
    measured = {key: median(times) for key, times in seconds.items()}
    predicted = {(ranks, case): predict(case, ranks, cores) for ranks, case in measured}
    print(format_growth(measured, predicted))
    return 0


def predict(case: Case, world_size: int, cores: int) -> float:
    """What the plans of all ranks say."""
    from distdbg.ops.call import Kind
    from distdbg.runtime.plan.compare import Cost, predict_s
    from distdbg.runtime.plan.make import make_plan
    from distdbg.runtime.plan.problem import Topology, uniform_problem

    topology = Topology(single_copy=True, slot_nbytes=SLOT_NBYTES)
    kind = Kind[case.kind.upper()]
    problems = [
        uniform_problem(kind, rank, world_size, case.nbytes, itemsize=4)
        for rank in range(world_size)
    ]
    return predict_s([make_plan(problem, topology) for problem in problems], Cost(cores=cores))


def format_growth(measured: Times, predicted: Times) -> str:
    """One block for each case: time and prediction, and what both grew since the line before."""
    blocks = []
    for case in CASES:
        sizes = sorted(ranks for ranks, of in measured if of == case)
        if not sizes:
            continue
        lines = [["ranks", "time", "growth", "predicted", "growth", "over"]]
        before = (sizes[0], case)
        for ranks in sizes:
            key = (ranks, case)
            growth, expected = measured[key] / measured[before], predicted[key] / predicted[before]
            before = key
            lines.append(
                [
                    str(ranks),
                    format_seconds(measured[key]),
                    f"{growth:.1f}x",
                    format_seconds(predicted[key]),
                    f"{expected:.1f}x",
                    f"{growth / expected:.2f}",
                ]
            )
        size = f" of {format_size(case.nbytes)}" if case.nbytes else ""
        blocks.append(f"{case.kind}{size}\n{align(lines, left=())}")
    return "\n\n".join(blocks)


if __name__ == "__main__":
    sys.exit(main())
