"""Names the process that holds a TCP port of this host, for error messages.

/proc/net/tcp names the sockets by inode, /proc/<pid>/fd says which process has them. A socket that
is bound but neither listens nor is connected is in no table; other users' processes do not show
theirs, but their name is in the table.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from distdbg.runtime.store.names import look_up

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LISTENING = "0A"
_COMMAND_LENGTH = 80
_MAX_NAMED = 4
#: For a name in an error message.
_LOOKUP_S = 1.0


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A line of /proc/net/tcp or tcp6."""

    address: Address
    port: int
    listens: bool
    uid: int
    inode: int


def holder_of(port: int, address: str | None = None) -> str:
    """Say who holds a port: 'python train.py (pid 4711, user ann)'.

    With `address`, sockets of other addresses do not count, those of all addresses do.
    """
    sockets = find_sockets(port, address)
    found = _processes({entry.inode for entry in sockets})
    if found:
        names = [_describe(pid, command) for pid, command in found]
        more = len(names) - _MAX_NAMED
        return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
    if sockets:
        users = sorted({_user_name(entry.uid) for entry in sockets})
        return f"a process of user {', '.join(users)} that cannot be seen from here"
    return "a process that cannot be seen from here, or does not listen on it yet"


def find_port_holders(port: int, address: str | None = None) -> list[tuple[int, str]]:
    """(pid, command line) of the processes that have a socket on `port`; listeners if any."""
    return _processes({entry.inode for entry in find_sockets(port, address)})


def find_sockets(port: int, address: str | None = None) -> list[BoundSocket]:
    """The sockets of this host on `port`; only those that listen, if any does."""
    wanted = None if address is None else _plain(ipaddress.ip_address(address.partition("%")[0]))
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            found += parse_sockets(Path(f"/proc/self/net/{table}").read_text())
    held = [
        entry
        for entry in found
        if entry.port == port
        and (wanted is None or wanted.is_unspecified or _covers(entry.address, wanted))
    ]
    return [entry for entry in held if entry.listens] or held


def parse_sockets(text: str) -> list[BoundSocket]:
    """Read a table; connections that are only being buried belong to nobody and are left out."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        address, _, port = fields[1].rpartition(":")
        if fields[9] != "0":
            found.append(
                BoundSocket(
                    address=_parse_address(address),
                    port=int(port, 16),
                    listens=fields[3] == _LISTENING,
                    uid=int(fields[7]),
                    inode=int(fields[9]),
                )
            )
    return found


def is_of_this_host(host: str) -> bool:
    """Whether a host name or address is one that can be bound here."""
    try:
        found = look_up(host, 0, limit_s=_LOOKUP_S)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
            return True
    return False


def _parse_address(text: str) -> Address:
    # Words of 32 bits, each in the order of this machine.
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return _plain(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


def _plain(address: Address) -> Address:
    """An IPv4 address as such, also where it came in IPv6's clothes."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _covers(held: Address, wanted: Address) -> bool:
    # All addresses of version 6 are mostly those of version 4 as well; the table does not tell.
    return held == wanted or (held.is_unspecified and held.version >= wanted.version)


def _processes(inodes: set[int]) -> list[tuple[int, str]]:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    holders = []
    for process in Path("/proc").iterdir() if wanted else ():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if any(_target(fd) in wanted for fd in (process / "fd").iterdir()):
                holders.append((int(process.name), _command(process)))
    return sorted(holders)


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:
        return ""


def _command(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    words[0] = words[0].rpartition("/")[2]
    text = " ".join(" ".join(words).split())
    return text if len(text) <= _COMMAND_LENGTH else f"{text[: _COMMAND_LENGTH - 3]}..."


def _describe(pid: int, command: str) -> str:
    if pid == os.getpid():
        return f"this process (pid {pid})"
    with contextlib.suppress(OSError):
        owner = _user_name(os.stat(f"/proc/{pid}").st_uid)
        return f"{command or '?'} (pid {pid}, user {owner})"
    return f"{command or '?'} (pid {pid}, which has ended meanwhile)"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
