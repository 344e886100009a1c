"""A port that is picked before the process that will listen on it has started.

A free port that is only looked up may be another's a moment later. This one is bound: the kernel
gives it to nobody who asks for any port, and to no connection as its own end. It does not listen, and
all of Linux's servers bind with SO_REUSEADDR, so whoever is told the number can listen on it.
"""

from __future__ import annotations

import errno
import socket
from typing import Self

from distdbg.errors import DistNetworkError
from distdbg.runtime.store.holder import holder_of, is_of_this_host

__all__ = ["HeldPort", "holder_of"]


class HeldPort:
    """Holds a TCP port on all addresses of this host until it is released."""

    def __init__(self, host: str = "localhost", port: int = 0) -> None:
        """Hold a free port, or that one; DistNetworkError says who has it.

        Where `host` is another one, a given port is taken as it is: nothing here is in its way.
        """
        self._socket = None if port and not is_of_this_host(host) else _hold(port)
        self.number = port if self._socket is None else int(self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let go of the port; who listens on it goes on. Idempotent."""
        if self._socket is not None:
            self._socket.close()


def _hold(port: int) -> socket.socket:
    # The IPv6 socket takes IPv4 as well; not every host has IPv6.
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            return _bind(family, address, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _taken(port) from error
            last = error
    raise DistNetworkError(f"cannot hold port {port}: {last.strerror}") from last


def _bind(family: int, address: str, port: int) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind((address, port))
    except BaseException:
        held.close()
        raise
    return held


def _taken(port: int) -> DistNetworkError:
    if port == 0:
        return DistNetworkError("this host has no free port left")
    return DistNetworkError(
        f"port {port} is held by {holder_of(port)}",
        hint="end that process, or choose another port; port 0 takes a free one",
    )
