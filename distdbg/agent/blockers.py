"""What keeps a process asleep, as Linux shows it: the holder of a file lock, children that are dead or waited
for, and the other end of the TCP connection that it reads from.

    rank 0 (127.0.0.1:38211)
    pid 812 (redis-server) (127.0.0.1:6379)
    rank 0 (127.0.0.1:38211), which has not accepted the connection
    10.0.0.3:5432                                of another host
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from distdbg.follow.processes import command_name, read_main_thread, read_stat
from distdbg.record.ends import signal_name
from distdbg.record.observations import NOT_ACCEPTED, UNREAD

#: Threads whose children are looked at, and children.
_MAX_THREADS: Final = 64
_MAX_CHILDREN: Final = 256
_WAITS: Final = "->"
#: Where the kernel keeps who waits for the end of a child process.
CHILD_WAITS: Final = frozenset(("do_wait", "kernel_wait4"))
_PIPE_FULL: Final = frozenset(("pipe_write", "anon_pipe_write"))
_PIPE_EMPTY: Final = frozenset(("pipe_read", "anon_pipe_read"))
_STATES: Final = {"R": "runs", "S": "sleeps", "D": "is blocked in I/O", "T": "is stopped"}
#: A shell that waits for a shell.
_MAX_SHELLS: Final = 4
#: Files of a process that are looked at.
_MAX_FILES: Final = 256


_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
#: A host with more connections than that tells nothing.
_MAX_NBYTES: Final = 4 << 20
#: Files of a process that are looked at.
MAX_OPEN_FILES: Final = 1024
_MAX_PROCESSES: Final = 4096


def lock_holder(locks: str, pid: int) -> int:
    """The pid that holds the file lock a process waits for, by the text of /proc/locks; 0: not known. Pure.

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
    for _ in range(_MAX_SHELLS):
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
    """The pid of its youngest child that is alive; 0."""
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
        for name in os.listdir(f"/proc/{pid}/fd")[:_MAX_FILES]:
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
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)[:_MAX_THREADS]
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read(1 << 14).split()[:_MAX_CHILDREN])
    except (OSError, ValueError):  # it ended, or the kernel tells nobody
        pass
    return found[-_MAX_CHILDREN:]


class TcpSocketLine(NamedTuple):
    """A line of /proc/net/tcp: both ends as it writes them, and the inode of the socket."""

    local: str
    remote: str
    is_listening: bool
    inode: int
    """0: nobody has accepted it."""


def read_end(pid: int, fd: int, ranks: Mapping[int, int]) -> str:
    """The process that is to send what another one waits for at `fd`; '' where that is no TCP connection.

    `ranks` by their pids.
    """
    inode = _inode_of(pid, str(fd))
    known = [*connections(_tables(pid))] if inode else []
    mine = next((one for one in known if one.inode == inode), None)
    if mine is None:
        return ""
    address = address_text(mine.remote)
    other = next((o for o in known if (o.local, o.remote) == (mine.remote, mine.local)), None)
    if other is None:
        return address
    if other.inode:
        who, rest = _owner_text(other.inode, ranks), ""
    else:
        listening = (o.inode for o in known if o.is_listening and _is_at(o.local, mine.remote))
        who, rest = _owner_text(next(listening, 0), ranks), NOT_ACCEPTED
    return f"{who} ({address}){rest}" if who else address


def _is_at(listening: str, address: str) -> bool:
    """Whether who listens there gets the connections to an address: its port, and that host or any."""
    host, _, port = listening.rpartition(":")
    return address.endswith(f":{port}") and (not int(host, 16) or address.startswith(f"{host}:"))


def connections(tables: str) -> Iterator[TcpSocketLine]:
    """Those of the text of /proc/net/tcp and tcp6. Pure."""
    for line in tables.splitlines():
        words = line.split()
        if len(words) > 9 and words[9].isdecimal() and ":" in words[1]:
            yield TcpSocketLine(words[1], words[2], words[3] == "0A", int(words[9]))


def address_text(text: str) -> str:
    """'0100007F:1F90' as '127.0.0.1:8080': words of the host's byte order in hex. Pure."""
    host, _, port = text.partition(":")
    try:
        words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
        packed = struct.pack(f"={len(words)}I", *words)
        name = socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)
        name = name.removeprefix("::ffff:")
        return f"[{name}]:{int(port, 16)}" if ":" in name else f"{name}:{int(port, 16)}"
    except (ValueError, struct.error, OSError):
        return ""


def _owner_text(inode: int, ranks: Mapping[int, int]) -> str:
    """Ranks before other processes of the user: these may be many."""
    if not inode:
        return ""
    for pid in ranks:
        if inode in _inodes_of(pid):
            return f"rank {ranks[pid]}"
    with suppress(OSError):
        for name in [one for one in os.listdir("/proc") if one.isdecimal()][:_MAX_PROCESSES]:
            if inode in _inodes_of(int(name)):
                return f"pid {name} ({command_name(int(name))})"
    return ""


def _inodes_of(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:MAX_OPEN_FILES]:
            yield _inode_of(pid, name)


def _inode_of(pid: int, fd: str) -> int:
    with suppress(OSError):
        found = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{fd}"))
        return int(found[1]) if found else 0
    return 0


def _tables(pid: int) -> str:
    text = ""
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
            text += file.read(_MAX_NBYTES) + "\n"
    return text
