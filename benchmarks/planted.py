"""`python -m benchmarks.planted`: one fault of each class in 4,096 ranks x 1,000 ops: found, time, memory.

The sessions are made in memory (`tests.support.planted`), so this is the engine alone, without the
reading of files; `benchmarks.analyze` has both. Each class runs in a process of its own, and its peak of
resident memory has the session in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.table import align
from distdbg.diagnose.verdict import diagnose
from tests.support.planted import FAULTS, plant

TARGET_S = 30.0
TARGET_NBYTES = 2 << 30
HEADER = ("planted", "found", "diagnose", "peak", "target", "verdict")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096, help="a multiple of 8")
    parser.add_argument("--ops", type=int, default=1000, help="a multiple of 10")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    faults = chosen.faults.split(",")
    if chosen.measure:
        print(json.dumps(measure(chosen.ranks, chosen.ops, faults[0])))
        return 0
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print(f"\n{chosen.ranks:,} ranks x {chosen.ops:,} ops; target {TARGET_S:g} s, 2 GiB\n")
    rows = [HEADER]
    code = 0
    for fault in faults:
        print(f"{fault} ...", file=sys.stderr, flush=True)
        found = _in_a_process(chosen.ranks, chosen.ops, fault)
        is_met = found["took_s"] < TARGET_S and found["peak_nbytes"] < TARGET_NBYTES
        code |= not (is_met and found["is_found"])
        rows.append(
            (
                fault,
                "yes" if found["is_found"] else "NO",
                f"{found['took_s']:.2f} s",
                f"{found['peak_nbytes'] / 2**20:.0f} MiB",
                "met" if is_met else "MISSED",
                found["what"],
            )
        )
    print(align(rows, left=(0, len(HEADER) - 1)))
    return int(code)


def measure(ranks: int, ops: int, fault: str) -> dict[str, Any]:
    """Plant one fault, and say what was found of it, how fast and with how much memory."""
    session = plant(ranks, ops, fault)
    began = time.monotonic()
    verdict = diagnose(session)
    took_s = time.monotonic() - began
    first = verdict.findings[0] if verdict.findings else None
    is_found = first is None if fault == "healthy" else first is not None and first.kind == fault
    return {
        "is_found": is_found,
        "took_s": took_s,
        "peak_nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "what": verdict.what if first is None else first.what,
    }


def _in_a_process(ranks: int, ops: int, fault: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.planted", "--measure"]
    command += [f"--ranks={ranks}", f"--ops={ops}", f"--faults={fault}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
