"""The listening socket of a TCPStore server: on the address of its host name, and no other.

When the port is taken, the error names who holds it.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from distdbg.errors import DistNetworkError, UsageError
from distdbg.record.durations import duration_text
from distdbg.runtime.store.holder import holder_of
from distdbg.runtime.store.names import LOOKUP_S, NoNameServer, look_up

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
                raise port_taken(host, port, holder_of(port, str(address[0]))) from error
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
    """Take over a socket that is bound, or listens already; `port` must be its port, or 0."""
    try:
        listener = socket.socket(fileno=fd)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        bound = int(listener.getsockname()[1])
    except OSError as error:
        raise UsageError(f"master_listen_fd={fd} is not a TCP socket: {error.strerror}") from error
    if not bound or port not in (0, bound):
        listener.detach()  # it stays the caller's
        what = f"is bound to port {bound}, not {port}" if bound else "is bound to no port"
        raise UsageError(f"master_listen_fd={fd} {what}")
    if not is_listening:
        listener.listen(_BACKLOG)
    return listener


def resolve(host: str, port: int) -> list[tuple[int, tuple[str, int] | tuple[str, int, int, int]]]:
    """The (family, address) pairs of a host, IPv4 first."""
    if not host:
        raise UsageError("host_name is empty")
    try:
        found = look_up(host, port)
    except NoNameServer as error:
        raise DistNetworkError(
            f"{error.strerror} within {duration_text(LOOKUP_S)}",
            hint="name the host by its address, or see to /etc/resolv.conf",
        ) from error
    except OSError as error:
        raise DistNetworkError(f"host {host!r} is unknown here: {error.strerror}") from error
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [(family, address) for family, _, _, _, address in found]


def is_loopback(address: str) -> bool:
    """Whether this is an address, no name, and reaches this host alone."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def hidden_address(host: str, address: str) -> str:
    """`address`, where the name of this host means one that other hosts cannot reach; else ''.

    Debian gives a host its own name at 127.0.1.1 in /etc/hosts.
    """
    is_asked_for = is_loopback(host) or host.startswith(("localhost", "ip6-l"))
    return address if is_loopback(address) and not is_asked_for else ""


def port_taken(host: str, port: int, holder: str) -> DistNetworkError:
    """The error for a port that another socket holds."""
    return DistNetworkError(
        f"cannot listen on {host}:{port}: the port is held by {holder}",
        hint="end that process, or choose another port; port 0 takes a free one",
    )
