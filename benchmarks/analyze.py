"""`python -m benchmarks.analyze`: how long it takes to say what is wrong with thousands of ranks.

The run is made (`benchmarks.made_run`), in a temporary folder that is removed at the end. Loading and
diagnosing are timed in a process of their own, with its peak of resident memory; children that it starts
for the reading count as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.made_run import FAULTS, make_run

TARGET_S = 30.0
TARGET_NBYTES = 2 << 30


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analyze", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--faults", default="none,missing", help=f"any of {','.join(FAULTS)}")
    parser.add_argument("--at", type=int, default=17, help="the rank to blame")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.measure is not None:
        print(json.dumps(measure(chosen.measure)))
        return 0
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print(
        f"\n{chosen.ranks:,} ranks x {chosen.ops:,} ops; target {TARGET_S:g} s, 2 GiB", flush=True
    )
    code = 0
    for fault in chosen.faults.split(","):
        with tempfile.TemporaryDirectory(prefix="distdbg-analyze-") as folder:
            began = time.monotonic()
            at = min(chosen.at, chosen.ranks - 1)
            make_run(Path(folder), ranks=chosen.ranks, ops=chosen.ops, fault=fault, at=at)
            made_s = time.monotonic() - began
            found = _in_a_process(folder)
        total_s = found["load_s"] + found["diagnose_s"]
        is_met = total_s < TARGET_S and found["peak_nbytes"] < TARGET_NBYTES
        code = code or (not is_met)
        print(
            f"{fault:10} load {found['load_s']:6.2f} s (core {found['load_cpu_s']:.2f} s)  "
            f"diagnose {found['diagnose_s']:6.2f} s (core {found['diagnose_cpu_s']:.2f} s)  "
            f"peak {found['peak_nbytes'] / 2**20:6.0f} MiB  {'met' if is_met else 'MISSED'}  "
            f"(made in {made_s:.0f} s)\n{'':10} {found['what']}",
            flush=True,
        )
    return int(code)


def measure(folder: Path) -> dict[str, object]:
    """Load and diagnose here."""
    from distdbg.diagnose.load.run_folder import load_run

    began, began_cpu = time.monotonic(), time.process_time()
    session = load_run(folder)
    loaded, loaded_cpu = time.monotonic(), time.process_time()
    try:
        from distdbg.diagnose.verdict import diagnose
    except ImportError:
        from distdbg.diagnose.matching import match

        match(session)
        what = "(matched only)"
    else:
        what = diagnose(session).what
    ended, ended_cpu = time.monotonic(), time.process_time()
    users = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = sum(resource.getrusage(who).ru_maxrss for who in users) * 1024
    return {
        "load_s": loaded - began,
        "diagnose_s": ended - loaded,
        "load_cpu_s": loaded_cpu - began_cpu,
        "diagnose_cpu_s": ended_cpu - loaded_cpu,
        "peak_nbytes": peak,
        "what": what,
    }


def _in_a_process(folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.analyze", "--measure", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=1800)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
