"""State of a process from Linux's /proc: CPU, memory, and what it is blocked in."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_NBYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """/proc/<pid>/stat, as far as anybody here needs it."""

    state: str
    """R S D T t Z X I, as ps shows it."""
    started: int
    """Ticks since boot; tells a pid that was given again."""
    cpu_s: float
    rss_nbytes: int
    threads: int
    wait_status: int
    """How a zombie ended."""


def read_stat(pid: int) -> ProcessStat | None:
    """None when there is no such process."""
    text = _read(f"/proc/{pid}/stat")
    # The name of the program may hold spaces and brackets: fields count from the last bracket.
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 50:
        return None
    return ProcessStat(
        state=fields[0].decode("ascii", "replace"),
        started=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        rss_nbytes=int(fields[21]) * _PAGE_NBYTES,
        threads=int(fields[17]),
        wait_status=int(fields[49]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MainThread:
    """What the first thread of a process does; '' and None where the kernel does not tell."""

    state: str
    wchan: str
    """The kernel's function that it is asleep in: 'futex_do_wait'."""
    syscall: int | None
    has_timeout: bool
    """Whether that call ends by itself."""
    voluntary: int
    """How often it went to sleep by itself."""
    is_futex: bool = False
    is_nap: bool = False
    """Whether it only lets time pass: nanosleep."""
    reads_fd: int | None = None
    """What it waits to read from."""


#: x86-64 and arm64 numbers of the calls that mean something here.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine, -1)
_NAPS = {"x86_64": (35, 230), "aarch64": (101, 115)}.get(os.uname().machine, ())
#: read, readv, recvfrom, recvmsg.
_READS = {"x86_64": (0, 19, 45, 47), "aarch64": (63, 65, 207, 212)}.get(os.uname().machine, ())
#: kill and tkill have the signal behind one number, tgkill behind two.
_KILLS = {"x86_64": (62, 200), "aarch64": (129, 130)}.get(os.uname().machine, ())
_TGKILL = {"x86_64": 234, "aarch64": 131}.get(os.uname().machine, -1)
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def stopped_process(rank: int, pid: int) -> str:
    """That a signal has stopped the process of a rank, and what lets it go on; '' where none has."""
    stat = read_stat(pid)
    if stat is None or stat.state != "T":
        return ""
    return (
        f"the process of rank {rank} is stopped (SIGSTOP or a like signal); "
        f"kill -CONT {pid} lets it go on"
    )


def has_stopped_itself(pid: int) -> bool:
    """Whether a stopped process is in the call by which it sent itself the signal."""
    number, words = _syscall(pid)
    if number not in (*_KILLS, _TGKILL) or len(words) < 4:
        return False
    to, first, second = (int(word, 16) & 0xFFFF_FFFF for word in words[1:4])
    signum = second if number == _TGKILL else first
    try:
        return to in (pid, 0, 2**32 - os.getpgid(pid)) and signum in _STOPS
    except ProcessLookupError:
        return False


def read_main_thread(pid: int) -> MainThread | None:
    """None when there is no such process."""
    stat = _read(f"/proc/{pid}/task/{pid}/stat").rpartition(b")")[2].split()
    if not stat:
        return None
    number, words = _syscall(pid)
    is_nap = has_timeout = number in _NAPS
    if number == _FUTEX and len(words) > 4:
        has_timeout = int(words[4], 16) != 0
    voluntary = 0
    for line in _read(f"/proc/{pid}/task/{pid}/status").splitlines():
        if line.startswith(b"voluntary_ctxt_switches:"):
            voluntary = int(line.split()[1])
    return MainThread(
        state=stat[0].decode("ascii", "replace"),
        wchan=_read(f"/proc/{pid}/task/{pid}/wchan").decode("ascii", "replace").strip("0\n"),
        syscall=number,
        has_timeout=has_timeout,
        voluntary=voluntary,
        is_futex=number == _FUTEX,
        is_nap=is_nap,
        reads_fd=int(words[1], 16) if number in _READS and len(words) > 1 else None,
    )


def _syscall(pid: int) -> tuple[int | None, list[bytes]]:
    """The number of the call that the main thread is in, and the line of the kernel with its arguments."""
    words = _read(f"/proc/{pid}/task/{pid}/syscall").split()
    return (int(words[0]) if words and words[0].lstrip(b"-").isdigit() else None), words


def find_tracer(pid: int) -> tuple[int, str]:
    """The tracer of a process, by pid and name; (0, ''): there is none."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"TracerPid:"):
            tracer = int(line.split()[1])
            return (tracer, command_name(tracer)) if tracer else (0, "")
    return 0, ""


def catches(pid: int, signum: int) -> bool:
    """Whether the process has a handler for a signal."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def read_parent(pid: int) -> int:
    """The parent's pid; 0 when there is no such process."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def command_name(pid: int) -> str:
    """'gdb'; '' when it is gone."""
    return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""  # no such process, or not ours to look at
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""  # it ended in between
    finally:
        os.close(fd)
