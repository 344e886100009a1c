"""Takes the stacks of processes of this host, in any state, within a deadline.

py-spy where installed and allowed: it stops the process for some milliseconds and reads its
memory. Else the signal that `a rank's `stack_signal`` has installed, whose answer is a file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distdbg import config
from distdbg.follow.processes import catches, read_stat
from distdbg.follow.stacks import RankStacks, ThreadStack, read_faulthandler, read_py_spy
from distdbg.record.durations import duration_text
from distdbg.record.printable import shorten
from distdbg.record.stack_file import STACK_SIGNAL, stacks_name

#: At once: each takes a core for a moment.
_AT_ONCE: Final = 4
_MAX_NBYTES: Final = 4 << 20
#: A file that has not grown for so long is complete.
_QUIET_S: Final = 0.03
#: Frames of libraries take py-spy long where these are large; their share of the time.
_NATIVE_SHARE: Final = 0.7


@dataclass(frozen=True, slots=True)
class SampledProcess:
    rank: int
    pid: int
    started: int
    """Ticks since boot: nobody else who got the pid is touched. 0: not known."""
    folder: Path
    """Where its .stacks file is, if it has one."""


def take_stacks(
    targets: Sequence[SampledProcess], deadline_ns: int, *, native: bool = True
) -> list[RankStacks]:
    """Look at all of them; each answer has stacks or says why not. Returns by the deadline."""
    if not targets:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(targets))) as pool:
        return list(pool.map(lambda target: take_one(target, deadline_ns, native=native), targets))


def take_one(
    target: SampledProcess, deadline_ns: int, *, native: bool, nonblocking: bool = False
) -> RankStacks:
    """Look at one process; `nonblocking`: do not stop it, so the stack may be torn."""
    stat = read_stat(target.pid)
    if stat is None or stat.state in "ZX" or (target.started and stat.started != target.started):
        return _nothing(target, "its process is gone")
    why_not = []
    py_spy = find_py_spy()
    if py_spy is None:
        is_wanted = config.read_setting("DISTDBG_STACKS") == "auto"
        why_not.append("py-spy is not installed" if is_wanted else "DISTDBG_STACKS=faulthandler")
    else:
        # A stopped process must not be stopped again, nor woken.
        is_nonblocking = nonblocking or stat.state in "Tt"
        modes = [["--nonblocking"]] if is_nonblocking else [["--native"], []] if native else [[]]
        for mode in modes:
            left_s = (deadline_ns - time.monotonic_ns()) / 1e9
            if mode == ["--native"]:
                left_s *= _NATIVE_SHARE
            if left_s <= 0:
                break
            try:
                threads = _ask_py_spy(py_spy, target.pid, mode, left_s)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                why_not.append(f"py-spy: {_first_line(error)}")
                continue
            return RankStacks(
                rank=target.rank,
                pid=target.pid,
                threads=threads,
                has_native=mode == ["--native"],
                how="py-spy",
            )
    if stat.state in "Tt":
        why_not.append("it is stopped, so it answers no signal")
        return _nothing(target, "; ".join(why_not))
    if time.monotonic_ns() >= deadline_ns:
        return _nothing(target, "; ".join([*why_not, "no time was left for it"]))
    text, why = ask_faulthandler(target, deadline_ns)
    stacks = read_faulthandler(text)
    if stacks:
        return RankStacks(rank=target.rank, pid=target.pid, threads=stacks, how="faulthandler")
    return _nothing(target, "; ".join([*why_not, why or "it did not answer the signal"]))


def find_py_spy() -> str | None:
    """The program, on the path or beside the interpreter; None also when it is not wanted."""
    if config.read_setting("DISTDBG_STACKS") == "faulthandler":
        return None
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def ask_faulthandler(target: SampledProcess, deadline_ns: int) -> tuple[str, str]:
    """Send the signal and return what the process writes; else '' and why there is nothing."""
    path = target.folder / stacks_name(target.rank)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return "", "it has no handler for the signal"
    try:
        life = os.pidfd_open(target.pid)
        try:
            stat = read_stat(target.pid)
            if stat is None or (target.started and stat.started != target.started):
                return "", "its process is gone"
            # Whoever does not catch it would die of it.
            if not catches(target.pid, STACK_SIGNAL):
                return "", "it has no handler for the signal"
            with suppress(OSError):
                os.ftruncate(fd, 0)  # of earlier answers; it writes at the end, wherever that is
            signal.pidfd_send_signal(life, STACK_SIGNAL)
        finally:
            os.close(life)
        return _read_answer(fd, deadline_ns), ""
    except OSError as error:
        return "", f"it cannot be signalled: {error.strerror}"
    finally:
        os.close(fd)


def _read_answer(fd: int, deadline_ns: int) -> str:
    size, grew_ns = 0, time.monotonic_ns()
    while (now_ns := time.monotonic_ns()) < deadline_ns:
        new = os.fstat(fd).st_size
        if new != size:
            size, grew_ns = new, now_ns
        elif size and now_ns - grew_ns > _QUIET_S * 1e9:
            break
        time.sleep(0.005)
    return os.pread(fd, min(size, _MAX_NBYTES), 0).decode("utf-8", "replace")


def _ask_py_spy(
    program: str, pid: int, mode: list[str], timeout_s: float
) -> tuple[ThreadStack, ...]:
    done = subprocess.run(
        [program, "dump", "--json", *mode, "--pid", str(pid)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(lines[0] if lines else f"exit code {done.returncode}")
    return read_py_spy(done.stdout[:_MAX_NBYTES], pid)


def _first_line(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took more than {duration_text(error.timeout)}"
    return shorten((str(error).splitlines() or [type(error).__name__])[0], 200)


def _nothing(target: SampledProcess, why: str) -> RankStacks:
    return RankStacks(rank=target.rank, pid=target.pid, why_not=why)
