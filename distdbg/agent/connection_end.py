"""The other end of the TCP connection that a process reads from, as Linux shows it.

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

from distdbg.follow.processes import command_name
from distdbg.record.observations import NOT_ACCEPTED

_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
#: A host with more connections than that tells nothing.
_MOST_NBYTES: Final = 4 << 20
#: Files of a process that are looked at.
_MOST_FILES: Final = 1024
_MOST_PROCESSES: Final = 4096


class TcpSocketLine(NamedTuple):
    """A line of /proc/net/tcp: both ends as it writes them, and the inode of the socket."""

    local: str
    remote: str
    is_listening: bool
    inode: int
    """0: nobody has accepted it."""


def read_end(pid: int, fd: int, ranks: Mapping[int, int]) -> str:
    """Who is to send what a process waits for at `fd`; '' where that is no TCP connection.

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
        for name in [one for one in os.listdir("/proc") if one.isdecimal()][:_MOST_PROCESSES]:
            if inode in _inodes_of(int(name)):
                return f"pid {name} ({command_name(int(name))})"
    return ""


def _inodes_of(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_FILES]:
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
            text += file.read(_MOST_NBYTES) + "\n"
    return text
