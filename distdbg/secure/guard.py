"""What servers and clients ask for: a guard that encrypts their connections, or None without DISTDBG_TLS."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from distdbg.secure.settings import is_on, read_settings

if TYPE_CHECKING:
    from distdbg.native import TcpRelay, TcpRelayed
    from distdbg.secure.relay import ConnectionSource, Relay

#: How long a server waits for the first byte of a client before it says, in clear, that it speaks TLS.
SILENCE_S: Final = 3.0
#: For links: who dials gives up after 10 s, and its first tries are shorter.
LINK_SILENCE_S: Final = 1.5
#: To clients whose protocol is native: see native/core/store_wire.hpp.
NATIVE_NOTICE: Final = b"distdbgT".ljust(48, b"\0")


class Guard:
    """Encrypts the connections of one server or one client. To be closed by `close` or `release`."""

    def __init__(self, source: ConnectionSource, relay: Relay) -> None:
        self._source = source
        self._relay = relay
        self._pid = os.getpid()
        self._is_open = True

    @property
    def native(self) -> TcpRelay:
        """The relay for native code."""
        return self._source.native

    def wrap(self, sock: socket.socket, *, is_server: bool) -> socket.socket:
        """The socket to use in place of this connected, or connecting, one; it has the same timeout."""
        timeout_s = sock.gettimeout()
        fd, relayed = self._source.native.carry(sock.detach(), is_server)
        made = SecuredSocket(fileno=fd)
        made.relayed = relayed
        made.settimeout(timeout_s)
        return made

    def close(self) -> None:
        """Its connections are closed inside: what they have sent leaves within a moment. Idempotent."""
        self._end(flushes=True)

    def release(self) -> None:
        """No more connections; those that there are go on until they are closed. Idempotent."""
        self._end(flushes=False)

    def _end(self, *, flushes: bool) -> None:
        if self._is_open and self._pid == os.getpid():
            self._is_open = False
            self._relay.remove(self._source, flushes=flushes)


class SecuredSocket(socket.socket):
    """The inner end of an encrypted connection."""

    relayed: TcpRelayed


def why_ended(sock: socket.socket) -> str:
    """Why the encrypted connection behind a socket ended, where TLS knows; else ''."""
    return sock.relayed.failure[1] if isinstance(sock, SecuredSocket) else ""


def open_guard(
    token: bytes,
    *,
    notice: bytes = NATIVE_NOTICE,
    silence_s: float = SILENCE_S,
    is_web: bool = False,
) -> Guard | None:
    """None where DISTDBG_TLS is not set; ConfigError when there is no certificate.

    `notice`: what a client gets that does not begin with TLS. `is_web`: clients need no certificate.
    """
    if not is_on():
        return None
    from distdbg.native import TcpRelay
    from distdbg.secure.contexts import make_contexts
    from distdbg.secure.relay import ConnectionSource, add_source

    settings = read_settings()
    assert settings is not None  # it is on
    source = ConnectionSource(TcpRelay(), make_contexts(settings, token), notice, silence_s, is_web)
    return Guard(source, add_source(source))
