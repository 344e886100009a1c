"""The user at the other end of a TCP connection within this host, by the kernel's tables."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from typing import Any, Final, NamedTuple

#: What is read of a table at a time, and at most: a host may have very many connections.
_CHUNK_NBYTES: Final = 1 << 16
_MAX_NBYTES: Final = 32 << 20
_UID, _INODE = 7, 9


def is_local(address: str) -> bool:
    """Whether an address is one that only processes of this host have."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


class Ends(NamedTuple):
    """Both ends of a connection, as its server sees it."""

    own: Any
    peer: Any
    family: int

    @classmethod
    def of(cls, sock: socket.socket) -> Ends:
        """OSError for a connection that is gone."""
        return cls(sock.getsockname(), sock.getpeername(), sock.family)

    @property
    def are_local(self) -> bool:
        return is_local(self.own[0]) and is_local(self.peer[0])


def uid_of_peer(ends: Ends) -> int | None:
    """The user at the other end of a connection within this host; None: not found.

    Also None for one that its owner has closed: the tables give those to root.
    """
    own, peer, family = ends
    pair = f"{_hex(peer[0], peer[1], family)} {_hex(own[0], own[1], family)}"
    if family == socket.AF_INET6:
        found = _find("/proc/self/net/tcp6", pair)
        mapped = (_mapped(peer[0]), _mapped(own[0]))
        if found is None and all(mapped):  # a client that knows only IPv4
            four = socket.AF_INET
            pair = f"{_hex(mapped[0], peer[1], four)} {_hex(mapped[1], own[1], four)}"
            found = _find("/proc/self/net/tcp", pair)
        return found
    found = _find("/proc/self/net/tcp", pair)
    if found is None:  # a client that uses IPv6 for all
        six = socket.AF_INET6
        both = [(f"::ffff:{one[0]}", one[1]) for one in (peer, own)]
        found = _find("/proc/self/net/tcp6", " ".join(_hex(*one, six) for one in both))
    return found


def find_uid(text: str, pair: str) -> int | None:
    """Find a connection in the kernel's table; `pair`: the ends as in a line of it."""
    at = text.find(f" {pair} ")
    if at < 0:
        return None
    begin = text.rfind("\n", 0, at) + 1
    fields = text[begin : text.find("\n", at)].split()
    if len(fields) <= _INODE or fields[_INODE] == "0":
        return None
    return int(fields[_UID])


def _find(path: str, pair: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    rest, seen = "", 0
    try:
        while seen < _MAX_NBYTES and (data := os.read(fd, _CHUNK_NBYTES)):
            seen += len(data)
            text = rest + data.decode("ascii", "replace")
            end = text.rfind("\n") + 1
            whole, rest = text[:end], text[end:]
            found = find_uid(whole, pair)
            if found is not None:
                return found
    except OSError:
        return None
    finally:
        os.close(fd)
    return find_uid(rest + "\n", pair)


def _hex(address: str, port: int, family: int) -> str:
    """Write an address as the tables do: words of 32 bits in the order of this machine."""
    packed = socket.inet_pton(family, address.partition("%")[0])
    count = len(packed) // 4
    words = struct.unpack(f"{'<' if sys.byteorder == 'little' else '>'}{count}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _mapped(address: str) -> str:
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped) if mapped is not None else ""
