"""What keeps a process asleep, as Linux shows it: who holds a file lock, and children, dead or waited for."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from distdbg.follow.processes import command_name, read_main_thread, read_stat
from distdbg.record.ends import signal_name
from distdbg.record.observations import UNREAD

#: Threads whose children are looked at, and children.
_MOST_THREADS: Final = 64
_MOST_CHILDREN: Final = 256
_WAITS: Final = "->"
#: Where the kernel keeps who waits for the end of a child process.
CHILD_WAITS: Final = frozenset(("do_wait", "kernel_wait4"))
_PIPE_FULL: Final = frozenset(("pipe_write", "anon_pipe_write"))
_PIPE_EMPTY: Final = frozenset(("pipe_read", "anon_pipe_read"))
_STATES: Final = {"R": "runs", "S": "sleeps", "D": "is blocked in I/O", "T": "is stopped"}
#: A shell that waits for a shell.
_MOST_SHELLS: Final = 4
#: Files of a process that are looked at.
_MOST_FILES: Final = 256


def lock_holder(locks: str, pid: int) -> int:
    """Who holds the file lock that a process waits for, by the text of /proc/locks; 0: not known. Pure.

    7: FLOCK  ADVISORY  WRITE 812 fe:00:4711 0 EOF
    7: -> FLOCK  ADVISORY  WRITE 815 fe:00:4711 0 EOF
    """
    holders: dict[str, int] = {}
    for line in locks.splitlines():
        number, *words = line.split() or [""]
        waits = words[:1] == [_WAITS]
        fields = words[1:] if waits else words
        if len(fields) < 4 or not fields[3].isdecimal():
            continue  # of a lock of an open file, which belongs to no process
        if not waits:
            holders[number] = int(fields[3])
        elif int(fields[3]) == pid:
            return holders.get(number, 0)
    return 0


def read_locks() -> str:
    """'' where they cannot be read."""
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def dead_child(pid: int) -> str:
    """'4711 (loader) was killed by SIGSEGV': the last child that failed, if nobody has waited for it; ''."""
    for child in reversed(_children(pid)):
        stat = read_stat(child)
        if stat is None or stat.state != "Z":
            continue
        code = os.waitstatus_to_exitcode(stat.wait_status)
        if code:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
            return f"{child} ({command_name(child)}) {how}"
    return ""


def awaited_child(pid: int) -> str:
    """'4711 (sort), which writes to a pipe that the rank does not read': the youngest that lives; ''.

    Of a shell that waits itself, what it has started.
    """
    child, where = 0, ""
    for _ in range(_MOST_SHELLS):
        living = _youngest(child or pid)
        if not living:
            break
        child = living
        thread = read_main_thread(child)
        where = thread.wchan if thread is not None else ""
        if where not in CHILD_WAITS:
            break
    return f"{child} ({command_name(child)}), which {_does(child, where, pid)}" if child else ""


def are_children_locked(pid: int) -> bool:
    """Whether it has children, and each that lives waits for a lock: of idle workers one reads its pipe."""
    threads = [
        read_main_thread(child)
        for child in _children(pid)
        if (stat := read_stat(child)) is not None and stat.state not in ("Z", "X")
    ]
    return bool(threads) and all(one is not None and one.is_futex for one in threads)


def _youngest(pid: int) -> int:
    """Of its children that live; 0."""
    for child in reversed(_children(pid)):
        stat = read_stat(child)
        if stat is not None and stat.state not in ("Z", "X"):
            return child
    return 0


def _does(child: int, where: str, pid: int) -> str:
    stat = read_stat(child)
    if where in _PIPE_FULL:
        is_of_rank = _pipes(child, os.O_WRONLY) & _pipes(pid, os.O_RDONLY)
        return UNREAD if is_of_rank else "writes to a full pipe"
    if where in _PIPE_EMPTY:
        return "waits for input from a pipe"
    does = _STATES.get(stat.state, "lives") if stat is not None else "has just ended"
    return f"{does} ({where})" if stat is not None and stat.state == "S" and where else does


def _pipes(pid: int, mode: int) -> set[str]:
    """Those that a process has open for reading (os.O_RDONLY), or for writing; not its standard input."""
    found: set[str] = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_FILES]:
            with suppress(OSError, ValueError):  # closed meanwhile
                file = os.readlink(f"/proc/{pid}/fd/{name}")
                if file.startswith("pipe:") and name != "0" and _access(pid, name) == mode:
                    found.add(file)
    except OSError:
        pass
    return found


def _access(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE
    return -1


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)[:_MOST_THREADS]
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read(1 << 14).split()[:_MOST_CHILDREN])
    except (OSError, ValueError):  # it ended, or the kernel tells nobody
        pass
    return found[-_MOST_CHILDREN:]
