"""`python -m benchmarks.verdict`: how long it takes until a job knows what is wrong with it.

Four ranks under `distdbg run`, each case several times; the median of each beside its target:

    mismatch     from the last call to the first rank that raises MismatchError
    dead rank    from the SIGKILL to the last rank that raises PeerLost
    deadlock     from the last rank's block to the last rank that raises the verdict
    stuck rank   from the SIGSTOP to the line that names it
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.machine import describe_machine

_PROGRAM = Path(__file__).parents[1] / "tests" / "launch" / "programs" / "hanging.py"
_LIMIT_S = 30.0
#: Case -> kind of the program, target in seconds.
CASES = {
    "mismatch": ("mismatch", 0.1),
    "dead rank": ("die", 1.0),
    "deadlock": ("cycle", 1.0),
    "stuck rank": ("stop", 2.0),
}


class Run:
    """One `distdbg run`: its lines, each with the moment at which it was read."""

    def __init__(self, kind: str, ranks: int, folder: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distdbg",
                "run",
                f"--nproc-per-node={ranks}",
                str(_PROGRAM),
                kind,
            ],
            env=os.environ | {"TMPDIR": folder, "DISTDBG_AGENT": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[tuple[float, str]] = []

    def read(self, is_last: Callable[[str], bool] = lambda _: False) -> None:
        """Read to the end, or to such a line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))
            if is_last(line):
                return

    def times(self, word: str, having: str = "") -> list[float]:
        """The second word of the lines that begin with `word`."""
        return [
            float(line.split()[1])
            for _, line in self.lines
            if line.startswith(word + " ") and having in line
        ]

    def end(self) -> None:
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(_LIMIT_S)


def measure(case: str, ranks: int) -> float:
    """Seconds, once."""
    kind, _ = CASES[case]
    with tempfile.TemporaryDirectory(prefix="v-") as folder:
        run = Run(kind, ranks, folder)
        try:
            if case == "stuck rank":
                run.read(lambda line: line.startswith("distdbg: "))
                reported, _ = run.lines[-1]
                pid = next(int(line.split()[1]) for _, line in run.lines if line.startswith("pid "))
                os.kill(pid, signal.SIGCONT)
                return reported - max(run.times("blocked"))
            run.read()
        finally:
            run.end()
    text = "\n".join(line for _, line in run.lines)
    if case == "mismatch":
        return min(run.times("raised", "MismatchError")) - max(run.times("blocked"))
    if case == "dead rank":
        return max(run.times("raised", "PeerLost")) - max(run.times("dies"))
    if not re.search("^distdbg: .*are deadlocked", text, re.MULTILINE):
        raise SystemExit(f"no verdict was printed\n{text}")
    return max(run.times("raised", "JobAborted")) - max(run.times("blocked"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--times", type=int, default=5, help="of which the median counts")
    chosen = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    is_met = True
    print(f"{'':<12} {'median':>9} {'worst':>9} {'target':>9}   {chosen.ranks} ranks")
    for case, (_, target_s) in CASES.items():
        found = [measure(case, chosen.ranks) for _ in range(chosen.times)]
        median = statistics.median(found)
        is_met = is_met and median < target_s
        print(f"{case:<12} {median:>7.3f} s {max(found):>7.3f} s {target_s:>7.1f} s", flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
