"""What keeps a process asleep, as Linux shows it: who holds a file lock, and children that have died."""

from __future__ import annotations

import os
from typing import Final

from distdbg.agent.processes import command_name, read_stat
from distdbg.record.ends import signal_name

#: Threads whose children are looked at, and children.
_MOST_THREADS: Final = 64
_MOST_CHILDREN: Final = 256
_WAITS: Final = "->"


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
