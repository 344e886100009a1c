"""Runs many right programs and prints what was wrongly said: python -m benchmarks.quiet"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.quiet.judge import Quiet, run_quietly
from benchmarks.quiet.steps import STEPS

_ROOT = Path(__file__).parents[2]
_PROGRAM = Path(__file__).with_name("program.py")
#: Right programs in which something is wrong, as they know.
_CAUGHT = ("right/a_mismatch_that_is_caught",)
_CATALOGUE = _ROOT / "tests" / "programs"


def main(argv: Sequence[str]) -> int:
    """Run and print; exit code 1 when anything was said."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quiet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", default=",".join(STEPS), help="the names of some steps")
    parser.add_argument("--catalogue", action="store_true", help="its right programs, first")
    chosen = parser.parse_args(argv)
    began = time.monotonic()
    deadline = began + 60 * chosen.minutes
    jobs = _jobs(chosen.seed, chosen.steps, chosen.only, chosen.catalogue)
    done: list[Quiet] = []
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    with ThreadPoolExecutor(chosen.side_by_side) as pool:
        running: set[Future[Quiet]] = set()
        while running or time.monotonic() < deadline:
            while len(running) < chosen.side_by_side and time.monotonic() < deadline:
                running.add(pool.submit(run_quietly, *next(jobs)))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                done.append(one.result())
                _print(done[-1])
    false = sum(bool(one.complaints) for one in done)
    print(
        f"{len(done):,} programs, {sum(one.ranks for one in done):,} ranks, "
        f"{sum(one.ops for one in done):,} ops in {(time.monotonic() - began) / 60:.1f} minutes; "
        f"stopped ranks named and taken back: {sum(one.taken_back for one in done)}; "
        f"programs with a false verdict: {false}"
    )
    return 1 if false else 0


def _jobs(
    seed: int, steps: int, only: str, has_catalogue: bool
) -> Iterator[tuple[str, list[str], int, dict[str, str], bool]]:
    if has_catalogue:
        sys.path.insert(0, str(_CATALOGUE))
        from runner.truth import all_programs, read_truth  # type: ignore[import-not-found]  # no package

        for truth in map(read_truth, all_programs()):
            if truth.is_right:
                yield truth.name, [str(truth.path)], truth.ranks, truth.env, truth.name in _CAUGHT
    while True:
        ranks = 16 if seed % 10 == 0 else random.Random(seed).randrange(2, 7)
        argv = [str(_PROGRAM), str(seed), str(steps), only]
        environ = {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
        yield f"seed {seed}", argv, ranks, environ, False
        seed += 1


def _print(one: Quiet) -> None:
    print(f"{one.name}: {one.ranks} ranks, {one.ops:,} ops" + ": FALSE" * bool(one.complaints))
    for complaint in one.complaints:
        print(f"    {complaint}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
