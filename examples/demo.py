"""`make demo`: a job that works, then the same job with one rank that is wrong.

Exits 0 only if both ended as they should: the first with a falling loss and equal weights, the
second with the same error on every rank.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FIT = Path(__file__).with_name("fit.py")
RANKS = 4
WRONG_RANK = 2
TIME_LIMIT_S = 120.0


def run(*options: str) -> tuple[int, str]:
    """Run the job and show its output; return its exit code and what it said."""
    print(f"$ python examples/fit.py {' '.join(options)}".rstrip(), flush=True)
    said = []
    command = [sys.executable, str(FIT), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        for line in job.stdout:
            print(f"    {line}", end="", flush=True)
            said.append(line)
        traceback = job.stderr.read()
        code = job.wait(TIME_LIMIT_S)
    if code:
        print(f"    exit code {code}", flush=True)
        said.append(traceback)
    return code, "".join(said)


def losses(said: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss ([\d.]+)", said)]


def main() -> int:
    print(f"1. {RANKS} ranks fit a network together; gradients are averaged with all_reduce\n")
    code, said = run()
    course = losses(said)
    if code or len(course) < 2 or course[-1] > course[0] / 4 or "bitwise equal" not in said:
        print(f"\nthe fit did not work\n{said}", file=sys.stderr)
        return 1

    print(f"\n2. the same job; rank {WRONG_RANK} has a hidden layer that is one unit wider.")
    print("   elsewhere such a job hangs, crashes or goes on with wrong numbers\n")
    code, said = run("--wrong-rank", str(WRONG_RANK))
    told = set(re.findall(r"^rank (\d+): MismatchError", said, re.MULTILINE))
    if code == 0 or told != {str(rank) for rank in range(RANKS)}:
        print(f"\nthe wrong rank was not reported by every rank\n{said}", file=sys.stderr)
        return 1
    print(
        f"\nevery rank was told that rank {WRONG_RANK} differs, and in what; the job ended at once"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
