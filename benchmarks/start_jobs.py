"""How long a launch takes, beside torchrun: python -m benchmarks.start_jobs [--ranks 64] [--rounds 7]

Each round starts the same program with both launchers, one after the other in changing order. The
program notes when it runs and ends. "last rank runs" is from the start of the launcher to the first
line of the last rank; "whole" is until the launcher has ended.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Nobody waits for it; of a machine that has other things to do, the best moment counts.
_HELP_S = 0.15

PROGRAM = """
import os, time
at = time.monotonic_ns()
with open(os.path.join(os.environ["BENCH_OUT"], os.environ["RANK"]), "w") as file:
    file.write(str(at))
"""


def launchers(ranks: int, program: Path) -> dict[str, list[str]]:
    """The command lines by name."""
    python = sys.executable
    count = f"--nproc-per-node={ranks}"
    return {
        "distdbg run": [python, "-m", "distdbg", "run", count, str(program)],
        "distdbg run, no agent": [
            python,
            "-m",
            "distdbg",
            "run",
            "--no-agent",
            count,
            str(program),
        ],
        "torchrun": [python, "-m", "torch.distributed.run", count, str(program)],
    }


def once(command: list[str], ranks: int) -> tuple[float, float]:
    """Seconds until the last rank runs, and until the launcher has ended."""
    with tempfile.TemporaryDirectory() as out:
        environ = os.environ | {"BENCH_OUT": out, "OMP_NUM_THREADS": "1", "DISTDBG_AGENT": "1"}
        begin = time.monotonic_ns()
        subprocess.run(command, env=environ, check=True, stderr=subprocess.DEVNULL, timeout=300)
        end = time.monotonic_ns()
        started = [int(path.read_text()) for path in Path(out).iterdir()]
    assert len(started) == ranks
    return (max(started) - begin) / 1e9, (end - begin) / 1e9


def help_times(rounds: int) -> list[float]:
    """Seconds that `distdbg --help` takes."""
    taken = []
    for _ in range(rounds):
        begin = time.monotonic_ns()
        subprocess.run(
            [sys.executable, "-m", "distdbg", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        taken.append((time.monotonic_ns() - begin) / 1e9)
    return taken


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        commands = launchers(args.ranks, program)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(args.rounds + 1):
            names = list(commands) if number % 2 else list(reversed(commands))
            for name in names:
                taken = once(commands[name], args.ranks)
                if number:  # the first round fills caches
                    times[name].append(taken)
    print(f"{args.ranks} ranks, {args.rounds} rounds, seconds: median (lowest to highest)")
    for name, taken in times.items():
        cells = []
        for column in zip(*taken, strict=True):
            middle = statistics.median(column)
            cells.append(f"{middle:6.2f} ({min(column):.2f} to {max(column):.2f})")
        print(f"  {name:24} last rank runs {cells[0]:24} whole {cells[1]}")
    helps = help_times(20)
    print(
        f"  distdbg --help: {statistics.median(helps) * 1e3:.0f} ms (lowest {min(helps) * 1e3:.0f}, "
        f"target {_HELP_S * 1e3:.0f}; highest {max(helps) * 1e3:.0f})"
    )
    return 0 if min(helps) < _HELP_S else 1


if __name__ == "__main__":
    sys.exit(main())
