"""The listening socket of a TCPStore server: on the address of its host name, and no other.

When the port is taken, the error names who holds it, found in /proc.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

from distdbg.errors import DistNetworkError, UsageError

_LISTENING = "0A"  # the state in /proc/net/tcp
_BACKLOG = 2048


def listen_on(host: str, port: int) -> socket.socket:
    """Listen on the first address of `host` that is this host's; IPv4 first, as clients try it."""
    if not 0 <= port < 65536:
        raise UsageError(f"port {port} is outside 0-65535")
    addresses: list[str] = []
    for family, address in resolve(host, port):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            addresses.append(str(address[0]))
            if error.errno == errno.EADDRINUSE:
                raise port_taken(host, port, find_port_holders(port)) from error
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise DistNetworkError(
                    f"cannot listen on {host}:{port}: {error.strerror}"
                ) from error
    raise DistNetworkError(
        f"cannot listen on {host}:{port}: {', '.join(addresses)} is not an address of this host",
        hint="the rank that serves the store must run on that host; "
        "host_name='0.0.0.0' listens on all interfaces",
    )


def adopt_listener(fd: int, port: int) -> socket.socket:
    """Take over a socket that already listens; `port` must be its port, or 0."""
    try:
        listener = socket.socket(fileno=fd)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        bound = int(listener.getsockname()[1])
    except OSError as error:
        raise UsageError(f"master_listen_fd={fd} is not a TCP socket: {error.strerror}") from error
    if not is_listening or port not in (0, bound):
        listener.detach()  # it stays the caller's
        what = f"listens on port {bound}, not {port}" if is_listening else "does not listen"
        raise UsageError(f"master_listen_fd={fd} {what}")
    return listener


def resolve(host: str, port: int) -> list[tuple[int, tuple[str, int] | tuple[str, int, int, int]]]:
    """The (family, address) pairs of a host, IPv4 first."""
    if not host:
        raise UsageError("host_name is empty")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DistNetworkError(f"host {host!r} is unknown here: {error.strerror}") from error
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def port_taken(host: str, port: int, holders: list[tuple[int, str]]) -> DistNetworkError:
    """The error for a port that another socket holds."""
    if holders:
        own = os.getpid()
        names = [f"pid {pid} ({'this process' if pid == own else text})" for pid, text in holders]
        who = f"held by {', '.join(names[:4])}"
    else:
        who = "held by a process that this user cannot see"
    return DistNetworkError(
        f"cannot listen on {host}:{port}: the port is {who}",
        hint="end that process, or choose another port; port 0 takes a free one",
    )


def find_port_holders(port: int) -> list[tuple[int, str]]:
    """(pid, command line) of the processes that have a socket bound to `port`; listeners if any."""
    sockets = [entry for table in ("tcp", "tcp6") for entry in _sockets_on(port, table)]
    listening = {inode for state, inode in sockets if state == _LISTENING}
    wanted = {f"socket:[{inode}]" for inode in listening or {inode for _, inode in sockets}}
    holders = []
    for process in Path("/proc").iterdir() if wanted else ():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if any(_target(fd) in wanted for fd in (process / "fd").iterdir()):
                command = (
                    (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                holders.append((int(process.name), command.strip()[:120] or "?"))
    return sorted(holders)


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:
        return ""


def _sockets_on(port: int, table: str) -> list[tuple[str, str]]:
    """(state, inode) of every socket of /proc/net/<table> whose own port is `port`."""
    try:
        lines = Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[9] != "0":
            found.append((fields[3], fields[9]))
    return found
