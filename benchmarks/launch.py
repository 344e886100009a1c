"""Start the ranks of one library, wait for them, and leave nothing behind whatever happens.

Every command gets a process group and a temporary folder of its own; both are gone when
`run_ranks` returns or raises, also on Ctrl-C. A rank asks the kernel to die with its launcher
(rank.py), because the launchers of MPI put their ranks into other groups.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.machine import die_with_parent
from benchmarks.measure import Limits
from benchmarks.peers import Start
from tests.support.ports import free_port

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one set of ranks gave."""

    lines: list[dict[str, Any]]
    """The results of rank 0 in order; shorter than the cases if `error` is set."""
    error: str | None


def run_ranks(
    library: str,
    start: Start,
    world_size: int,
    cases: Sequence[Case],
    limits: Limits,
    *,
    pin: bool = False,
    timeout_s: float = 180.0,
) -> Outcome:
    """Measure the cases in a fresh set of `world_size` ranks; never raises for what they do."""
    with _scratch() as (folder, shm_folder):
        results = folder / "results"
        order = {
            "library": library,
            "world_size": world_size,
            "port": free_port(),
            "cases": [(case.kind, case.nbytes) for case in cases],
            "limits": asdict(limits),
            "pin": pin,
            "results": str(results),
        }
        words = [sys.executable, "-m", "benchmarks.rank", json.dumps(order)]
        env = {
            **os.environ,
            **start.env,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")])
            ),
            "TMPDIR": str(folder),
            "OMPI_MCA_btl_sm_backing_directory": str(shm_folder),
        }
        if start.launcher:
            commands = [([*start.launcher, *words], env)]
        else:
            commands = [(words, {**env, "RANK": str(rank)}) for rank in range(world_size)]
        error = run_commands(commands, folder / "output", timeout_s)
        text = results.read_text() if results.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if error is None and len(lines) < len(cases):
        error = f"ended after {len(lines)} of {len(cases)} cases without an error"
    return Outcome(lines, error)


def run_commands(
    commands: Sequence[tuple[list[str], dict[str, str]]], output: Path, timeout_s: float
) -> str | None:
    """Run the commands side by side; the first that fails, or the time limit, ends all of them."""
    deadline = time.monotonic() + timeout_s
    processes: list[subprocess.Popen[bytes]] = []
    with output.open("wb") as sink:
        try:
            for words, env in commands:
                processes.append(
                    subprocess.Popen(
                        words,
                        env=env,
                        stdin=subprocess.DEVNULL,
                        stdout=sink,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        # Ends a launcher of MPI, and it its ranks, when we are killed.
                        preexec_fn=partial(die_with_parent, signal.SIGTERM),
                    )
                )
            while True:
                codes = [process.poll() for process in processes]
                failed = [code for code in codes if code not in (None, 0)]
                if failed:
                    return f"exit code {failed[0]}: {_last_words(output)}"
                if all(code == 0 for code in codes):
                    return None
                if time.monotonic() > deadline:
                    return f"not done after {timeout_s:.0f} s: {_last_words(output)}"
                time.sleep(0.02)
        finally:
            _end(processes)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask the groups to end (launchers then end their ranks), and kill what does not within 2 s."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        _signal_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + 2.0
    for process in alive:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        _signal_group(process.pid, signal.SIGKILL)  # also what a dead leader left in its group
        process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _last_words(output: Path) -> str:
    """The last line that looks like an error, else the last line."""
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line.strip("-=* ")]
    telling = [line for line in lines if "Error" in line or "error" in line]
    return (telling or lines or ["no output"])[-1][:300]


@contextlib.contextmanager
def _scratch() -> Iterator[tuple[Path, Path]]:
    """A folder for files and one in shared memory for Open MPI's segments.

    MPICH cannot be told where to put its segments, and leaves them when it is killed; so those that
    came meanwhile and that no process maps are removed as well.
    """
    before = set(_mpich_segments())
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    shm_folder = Path(tempfile.mkdtemp(prefix="bench-", dir="/dev/shm"))
    try:
        yield folder, shm_folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shm_folder, ignore_errors=True)
        for segment in set(_mpich_segments()) - before:
            if not _is_mapped(segment):
                segment.unlink(missing_ok=True)


def _mpich_segments() -> list[Path]:
    return list(Path("/dev/shm").glob("mpich_shm_*"))


def _is_mapped(file: Path) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(file) in maps.read_text():
                return True
    return False
