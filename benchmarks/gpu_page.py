"""`python -m benchmarks.gpu_page`: all that is to be run where a GPU is, as a section for gpu.md.

What is here (device, driver, CuPy, NCCL, torch), what `tests/gpu` said, the table of `benchmarks.gpu`, and
how that stands to what is promised. It ends within `--minutes`, whatever hangs; what was not measured by
then says so. Exit code: 0 when all tests passed and all was measured that can be here, else 1.
`--without tests` or `--without benchmark` leaves one of them out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks import gpu

ROOT: Final = Path(__file__).parent.parent
#: Of the time, for the tests.
TESTS_SHARE: Final = 0.5
#: What is promised of 2 and 4 ranks on one GPU, from 64 MiB to 1 GiB.
LEAST_MOVED, LEAST_FASTER = 0.6, 20.0

#: Printed as JSON by a process of its own: CUDA that hangs or is missing ends that alone.
ASK = """
import json
found = {}
def ask(name, what):
    try:
        found[name] = str(what())
    except Exception as error:
        found[name] = f"none ({type(error).__name__})"
def device():
    import cupy
    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
def cupy_version():
    import cupy
    return cupy.__version__
def runtime():
    import cupy
    return cupy.cuda.runtime.runtimeGetVersion()
def driver():
    import cupy
    return cupy.cuda.runtime.driverGetVersion()
def nccl():
    from cupy.cuda import nccl
    return nccl.get_version()
def torch_version():
    import torch
    return torch.__version__
for name, what in (("device", device), ("CuPy", cupy_version), ("CUDA runtime", runtime),
                   ("CUDA driver", driver), ("NCCL", nccl), ("torch", torch_version)):
    ask(name, what)
print(json.dumps(found))
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_page", description=__doc__)
    parser.add_argument("--minutes", type=float, default=25.0, help="all ends by then: 25")
    parser.add_argument("--ranks", type=gpu.numbers, default=[1, 2, 4])
    parser.add_argument("--mib", type=gpu.numbers, default=[64, 1024, 1])
    parser.add_argument("--without", choices=["tests", "benchmark"])
    args = parser.parse_args(argv)
    gpus = gpu.count_gpus()
    if not gpus:
        print("there is no GPU here (no /dev/nvidia0): nothing was run")
        return 1
    deadline = time.monotonic() + 60 * args.minutes
    facts = ask_for_facts(deadline)
    print(f"### {facts.pop('device', 'unknown')}, {datetime.date.today():%Y-%m-%d}\n")
    listed = ", ".join(f"{name} {value}" for name, value in facts.items())
    print(f"{gpus} GPU{'s' if gpus > 1 else ''}; {listed}.\n", flush=True)
    is_good = True
    if args.without != "tests":
        share = 1.0 if args.without == "benchmark" else TESTS_SHARE
        is_good = run_tests(time.monotonic() + share * (deadline - time.monotonic()))
    if args.without != "benchmark":
        is_good = run_benchmark(args.ranks, args.mib, gpus, deadline) and is_good
    return 0 if is_good else 1


def ask_for_facts(deadline: float) -> dict[str, str]:
    """By name."""
    try:
        reported = subprocess.run(
            [sys.executable, "-c", ASK], capture_output=True, text=True, cwd=ROOT,
            timeout=min(60.0, left_s(deadline)), check=True,
        )  # fmt: skip
        found: dict[str, str] = json.loads(reported.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"device": f"unknown ({type(error).__name__})"}
    return found


def run_tests(deadline: float) -> bool:
    """Whether all that can run here has passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--run-slow", "--tb=short", "tests/gpu"]
    print(f"`{' '.join(['python', *command[1:]])}`:\n\n```", flush=True)
    lines, code = run_in_time(command, left_s(deadline))
    has_passed = code == 0 and any(re.search(r"\d+ passed", line) for line in lines)
    for line in lines[-3:] if has_passed else lines:
        print(line)
    print("```\n", flush=True)
    return has_passed


def run_in_time(command: Sequence[str], limit_s: float) -> tuple[list[str], int]:
    """What it printed and its exit code; nothing that it started is left."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
            last = []
        except subprocess.TimeoutExpired:
            code, last = 1, ["did not end in its time, and was killed"]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return [*out.read().decode(errors="replace").strip().splitlines(), *last], code


def run_benchmark(sizes: Sequence[int], mibs: Sequence[int], gpus: int, deadline: float) -> bool:
    """Whether all was measured that so many GPUs allow."""
    print("| ranks | MiB | op | way | median | GB/s | copy GB/s | share of it | faster than gloo |")
    print("|---|---|---|---|---|---|---|---|---|")
    is_whole = True
    promised: list[tuple[str, gpu.Line]] = []
    for mib in mibs:  # the ones that are promised first
        for size in sizes:
            found = {way: measure(way, size, mib, gpus, deadline) for way in gpu.WAYS}
            for way, each in found.items():
                if isinstance(each, str):
                    print(f"| {size} | {mib} | | {way} | {each} | | | | |", flush=True)
                    is_whole = is_whole and gpu.why_not(way, size, gpus) is not None
                    continue
                for line in gpu.lines_of(size, mib, gpus, each, found[gpu.WAYS[-1]]):
                    print(row(size, mib, way, line, each["copy"]), flush=True)
                    if way == "ipc" and size > 1 and mib >= 64 and line.op != "send":
                        promised.append((f"{line.op}, {size} ranks, {mib} MiB", line))
    print()
    tell_promises(promised)
    return is_whole


def measure(way: str, size: int, mib: int, gpus: int, deadline: float) -> dict[str, float] | str:
    """Within the time that is left."""
    left = left_s(deadline)
    if left <= 1.0 and gpu.why_not(way, size, gpus) is None:
        return "not measured: the time was over"
    return gpu.measure_if_possible(way, size, mib, gpus, min(float(gpu.LIMIT_S), left))


def row(size: int, mib: int, way: str, line: gpu.Line, copy_rate: float) -> str:
    """Of the table."""
    moved = "" if line.moved is None else f"{line.moved:.0%}"
    faster = "" if line.faster is None else f"{line.faster:.1f}x"
    cells: list[Any] = [
        size, mib, line.op, way, f"{line.seconds * 1e3:.3f} ms", f"{line.rate:.1f}",
        f"{copy_rate:.0f}", moved, faster,
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def tell_promises(found: Sequence[tuple[str, gpu.Line]]) -> None:
    """How IPC on one GPU stands to what is promised."""
    reported = {
        f"{LEAST_MOVED:.0%} of the copy bandwidth": [
            (name, f"{line.moved:.0%}", line.moved >= LEAST_MOVED)
            for name, line in found
            if line.moved is not None
        ],
        f"{LEAST_FASTER:g} times as fast as torch gloo": [
            (name, f"{line.faster:.1f}x", line.faster >= LEAST_FASTER)
            for name, line in found
            if line.faster is not None
        ],
    }
    for what, each in reported.items():
        missed = [f"{name}: {value}" for name, value, is_met in each if not is_met]
        print(
            f"- {what}, over IPC on one GPU: {len(each) - len(missed)} of {len(each)} met", end=""
        )
        print(f" (not: {'; '.join(missed)})" if missed else "")


def left_s(deadline: float) -> float:
    """At least a moment."""
    return max(0.1, deadline - time.monotonic())


if __name__ == "__main__":
    sys.exit(main())
