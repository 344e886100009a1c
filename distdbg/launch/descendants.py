"""Finds all descendants of this process in /proc, and terminates them.

A process may leave its session, its group and its parent; it cannot leave the tree of a subreaper:
an orphan becomes the child of the nearest one above it. So whoever is a subreaper (`adopt_orphans`)
finds everything it ever started by walking down from itself.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
#: How long one look at the tree waits for what it killed; then it looks again for what is new.
_PASS_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessRow:
    pid: int
    parent: int
    start: int
    """In ticks since boot: the same pid with another start is another process."""
    is_over: bool
    """It has ended and waits for its parent to ask how."""


class SweepResult(NamedTuple):
    killed: tuple[int, ...]
    left: tuple[int, ...]
    """Pids that did not go in time: in uninterruptible I/O, or another user's."""


def adopt_orphans(is_wanted: bool = True) -> bool:
    """Make this process a subreaper, or no longer; returns what it was before."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    was = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)
    return bool(was.value)


def read_process(pid: int) -> ProcessRow | None:
    """One process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, parentheses too.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # A leader that ended while its threads go on looks dead and is not: fields[17] counts threads.
    is_over = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    return ProcessRow(pid, int(fields[1]), int(fields[19]), is_over)


def read_processes() -> dict[int, ProcessRow]:
    """All processes that this one can see, by pid."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def find_descendants(
    root: int, table: Mapping[int, ProcessRow], spare: Iterable[int] = ()
) -> list[ProcessRow]:
    """What is below `root`, parents before children; not the `spare` ones, nor what is below them."""
    children: dict[int, list[ProcessRow]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    spared = set(spare)
    found: list[ProcessRow] = []
    waiting = [root]
    while waiting:
        below = [p for p in children.pop(waiting.pop(), ()) if p.pid not in spared]
        found.extend(below)
        waiting.extend(process.pid for process in below)
    return found


def kill_descendants(
    deadline_ns: int, *, spare: Iterable[int] = (), reap: Callable[[], object] | None = None
) -> SweepResult:
    """SIGKILL everything below this process until nothing is left, or the deadline has passed.

    `reap` is called between looks to wait for children that have ended; without it those are waited
    for here, the spared ones excepted.
    """
    spared = frozenset(spare)
    own = os.getpid()
    killed: list[int] = []
    while True:
        if reap is not None:
            reap()
        below = find_descendants(own, read_processes(), spared)
        if reap is None:
            _reap([process.pid for process in below if process.is_over and process.parent == own])
        alive = [process for process in below if not process.is_over]
        if not alive or time.monotonic_ns() >= deadline_ns:
            return SweepResult(tuple(killed), tuple(process.pid for process in alive))
        killed.extend(pid for pid in _kill(alive) if pid not in killed)


def _kill(processes: list[ProcessRow]) -> list[int]:
    """Kill and wait a moment; returns the pids that could be signalled."""
    killed: list[int] = []
    descriptors: list[int] = []
    ends = select.poll()
    try:
        for process in processes:
            # Other than a pid, a descriptor cannot come to mean another process; what it means is
            # asked once it is held.
            with suppress(OSError):
                descriptor = os.pidfd_open(process.pid)
                descriptors.append(descriptor)
                now = read_process(process.pid)
                if now is None or now.start != process.start:
                    continue
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                killed.append(process.pid)
                ends.register(descriptor, select.POLLIN)
        waiting = len(killed)
        until = time.monotonic() + _PASS_S
        while waiting > 0 and (left_s := until - time.monotonic()) > 0:
            for descriptor, _ in ends.poll(left_s * 1e3):
                ends.unregister(descriptor)
                waiting -= 1
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return killed


def _reap(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
