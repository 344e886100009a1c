"""Starts the ranks and judges what they report: python -m benchmarks.soak"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.soak.walk import soak
from distdbg.testing import run_ranks

#: How much larger the memory of a rank may be at its peak in the second half of the way than in the first.
#: Peaks, since plans are kept until they are too many, and then dropped all at once.
MOST_GROWTH_KIB = 2048

Report = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Run and print; exit code 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--ops", type=int, default=1_000_000, help="ops of the whole program")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=3600.0)
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        began = time.monotonic()
        reports, faults = run(
            Path(folder),
            chosen.ops,
            chosen.ranks,
            chosen.seed,
            early=chosen.ops // 20,
            limit_s=chosen.limit_s,
        )
    first, last = reports[0]["first"], reports[0]["last"]
    kinds = reports[0]["kinds"]
    print(f"{reports[0]['ops']:,} ops of {len(kinds)} kinds on {chosen.ranks} ranks and")
    print(f"{reports[0]['groups_made']:,} groups in {time.monotonic() - began:.0f} s")
    print("rank 0 held   ", ", ".join(f"{name} {value:,}" for name, value in first.items()))
    for rank, report in enumerate(reports):
        way = report["way"]
        peaks = f"{max(way[: len(way) // 2]):,} and {max(way[len(way) // 2 :]):,} KiB"
        print(f"rank {rank}: peaks of its own memory in the first and second half: {peaks}")
    print("at the end    ", ", ".join(f"{name} {value:,}" for name, value in last.items()))
    print("\n".join(faults) if faults else "nothing was found, and nothing grew")
    return 1 if faults else 0


def run(
    folder: Path,
    op_count: int,
    rank_count: int,
    seed: int,
    *,
    early: int,
    limit_s: float,
    most_growth_kib: int = MOST_GROWTH_KIB,
) -> tuple[list[Report], list[str]]:
    """Walk on fresh ranks; return their reports, and what is wrong with them.

    What they hold after `early` ops is what they may hold at the end: kept plans are many by then.
    """
    reports = run_ranks(
        soak,
        rank_count,
        tmp_path=folder,
        timeout=limit_s,
        env={
            "DISTDBG_RUN_DIR": str(folder / "run"),
            "DISTDBG_DEBUG": "DETAIL",
            "PYTHONPATH": str(Path(__file__).parents[2]),  # ranks import the rest of this package
        },
        op_count=op_count,
        seed=seed,
        early=early,
    )
    faults = []
    for rank, report in enumerate(reports):
        said = (folder / "ranks0" / f"rank{rank}.out").read_text()
        faults += [f"rank {rank}: {line}" for line in said.splitlines()]
        faults += [f"rank {rank}: {line}" for line in report["complaints"]]
        grown = find_growth(report["first"], report["last"])
        grown += find_memory_growth(report["way"], most_growth_kib)
        faults += [f"rank {rank}: {line}" for line in grown]
    return reports, faults


def find_growth(first: dict[str, int], last: dict[str, int]) -> list[str]:
    """What a rank holds more of than before."""
    return [
        f"{name} grew from {before:,} to {last[name]:,}"
        for name, before in first.items()
        if last[name] > before and not name.endswith("_kib")
    ]


def find_memory_growth(way: Sequence[int], most_kib: int) -> list[str]:
    """Whether the second half of the way took more memory than the first."""
    half = len(way) // 2
    early, late = max(way[:half]), max(way[half:])
    if late - early <= most_kib:
        return []
    return [f"the peak of its own memory grew from {early:,} to {late:,} KiB"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
