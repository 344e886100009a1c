"""At which address a server was dialled, as both ends of a connection know it. Pure, but for two sockets.

Proofs of a connection are about this address, so a stranger who hands a handshake on to another server
of the same user gets nothing: that one is served elsewhere. Where something translates addresses
between the two (a tunnel, a container's published port), DISTDBG_SERVED_AS tells the server the address
that its clients dial. The tokens that proofs are made with are derived from a key for one purpose each, so
whoever learns one of them cannot use it elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import socket
from collections.abc import Mapping
from typing import Any

from distdbg import config
from distdbg.errors import ConfigError

VARIABLE = "DISTDBG_SERVED_AS"


def pack(host: str, port: int) -> bytes:
    """16 bytes of IPv6 (IPv4 is mapped into it) and the port, big-endian. ValueError for no IP address."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    v6 = b"\0" * 10 + b"\xff\xff" + ip.packed if ip.version == 4 else ip.packed
    return v6 + port.to_bytes(2, "big")


def show(address: bytes) -> str:
    """As people write it: '10.0.0.7:29500'."""
    ip = ipaddress.IPv6Address(address[:16])
    host = str(ip.ipv4_mapped) if ip.ipv4_mapped else f"[{ip}]"
    return f"{host}:{int.from_bytes(address[16:], 'big')}"


def own_address(sock: socket.socket) -> bytes:
    """The address of this end of a connection over TCP."""
    return _of(sock.getsockname())


def peer_address(sock: socket.socket) -> bytes:
    return _of(sock.getpeername())


def read_served_as(environ: Mapping[str, str] = os.environ) -> list[bytes]:
    """The addresses of DISTDBG_SERVED_AS; ConfigError for what is none."""
    text = config.read_setting(VARIABLE, environ)
    found = []
    for part in str(text or "").split(","):
        if not part.strip():
            continue
        host, _, port = part.strip().rpartition(":")
        try:
            number = int(port)
            if not 0 < number < 1 << 16:
                raise ValueError
            found.append(pack(host.strip("[]"), number))
        except ValueError:
            raise ConfigError(
                f"{VARIABLE}: {part.strip()!r} is not an IP address with a port",
                hint="as in 10.0.0.7:29500; several are separated by commas",
            ) from None
    return found


def _of(name: Any) -> bytes:
    return pack(name[0], name[1])


def derive_token(key: bytes, purpose: str, run: str = "") -> bytes:
    """The token of one purpose, and of one run where one is named."""
    words = f"distdbg token\0{purpose}\0{run}".encode("utf-8", "surrogateescape")
    return hmac.digest(key, words, hashlib.sha256)
