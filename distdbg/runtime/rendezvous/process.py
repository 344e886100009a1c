"""Tells which process an announcement came from, and whether that process is certainly gone.

A pid alone says little: pids are used again, and containers number their own. So a process is its
boot, its pid namespace, its pid and its start time, and "gone" is only said where that is proven.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """The identity of one process, comparable between ranks of different hosts."""

    host: str
    boot_id: str
    pid_namespace: int
    pid: int
    started: int
    """Clock ticks from boot to its start; 0: not known."""
    net_namespace: int = 0
    """Processes of one such reach each other's loopback interface; 0: not known."""

    def shares_kernel(self, other: ProcessIdentity) -> bool:
        """Whether `other`'s pids mean the same as mine."""
        return (self.boot_id, self.pid_namespace) == (other.boot_id, other.pid_namespace)


def identify_self() -> ProcessIdentity:
    """Return the identity of the calling process."""
    pid = os.getpid()
    return ProcessIdentity(
        host=socket.gethostname(),
        boot_id=_read_text("/proc/sys/kernel/random/boot_id").strip(),
        pid_namespace=_read_inode("/proc/self/ns/pid"),
        pid=pid,
        started=read_start(pid) or 0,
        net_namespace=_read_inode("/proc/self/ns/net"),
    )


def read_start(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None without such a process."""
    # The name of the program may hold spaces and brackets: fields count from the last bracket.
    fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None  # a zombie does nothing any more
    return int(fields[19])


def is_gone(process: ProcessIdentity, me: ProcessIdentity) -> bool:
    """Whether `process` has certainly ended; False also where that cannot be known from here."""
    if process.host == me.host and process.boot_id != me.boot_id:
        return bool(process.boot_id and me.boot_id)  # this host has been started again since
    if not process.shares_kernel(me) or not me.boot_id:
        return False
    return read_start(process.pid) != process.started


def is_alive(process: ProcessIdentity, me: ProcessIdentity) -> bool:
    """Whether `process` certainly lives; False also where that cannot be known from here."""
    return (
        bool(me.boot_id)
        and process.shares_kernel(me)
        and read_start(process.pid) == process.started
    )


def find_launcher_process(names: re.Pattern[str]) -> str:
    """Return 'pid.start' of the nearest ancestor with such a name, else of the parent."""
    parent = os.getppid()
    pid = parent
    while pid > 1:
        stat = _read_text(f"/proc/{pid}/stat")
        name = stat[stat.find("(") + 1 : stat.rfind(")")]
        if names.fullmatch(name):
            return f"{pid}.{read_start(pid)}"
        fields = stat.rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return f"{parent}.{read_start(parent)}"


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # no such process, or a system without /proc


def _read_inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
