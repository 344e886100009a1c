"""The servers of this process's TCPStores: who owns them, and which ports they serve."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import weakref

from distdbg.control.dialled_address import derive_token, read_served_as
from distdbg.errors import DistNetworkError
from distdbg.native import NativeError, StoreServer
from distdbg.runtime.store.listen import adopt_listener, listen_on
from distdbg.runtime.store.timeouts import to_ns
from distdbg.secure.guard import open_guard

KEY_NBYTES = 64 << 10
VALUE_NBYTES = 64 << 20
_PROOF_TIMEOUT_S = 10.0


class SharedServer:
    """A running server and how many stores own it; the last one to leave closes it."""

    def __init__(
        self, listener: socket.socket, token: bytes, value_nbytes: int, *, shares_port: bool
    ) -> None:
        served_as = read_served_as()
        self._guard = open_guard(token)
        #: Where it listens.
        self.address, self.port = str(listener.getsockname()[0]), int(listener.getsockname()[1])
        self._lock = threading.Lock()
        self._owners = 1
        try:
            self.native = StoreServer(
                listener.detach(),
                derive_token(token, "store"),
                key_nbytes=KEY_NBYTES,
                value_nbytes=value_nbytes,
                shares_port=shares_port,
                proof_timeout_ns=to_ns(_PROOF_TIMEOUT_S),
                served_as=served_as,
                relay=self._guard.native if self._guard is not None else None,
            )
        except BaseException:
            if self._guard is not None:
                self._guard.close()
            raise

    def acquire(self) -> bool:
        """Become another owner; False when the last one has left, and the port is free again."""
        with self._lock:
            if self._owners == 0:
                return False
            self._owners += 1
            return True

    def refused(self) -> tuple[int, str]:
        """How many clients did not know the token, and the address of the last one."""
        count, address = self.native.refused()
        return count, str(_plain(address[:16])) if len(address) >= 16 else ""

    def release(self) -> None:
        """Stop being an owner."""
        with self._lock:
            self._owners -= 1
            if self._owners == 0:
                self.native.close()
                if self._guard is not None:
                    self._guard.close()


def _plain(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.IPv6Address(address)
    return found.ipv4_mapped or found


# multi_tenant means "the server of this process on this port", so it is known per process.
_tenants: weakref.WeakValueDictionary[tuple[int, int], SharedServer] = weakref.WeakValueDictionary()
_tenants_lock = threading.Lock()


def serve(
    host: str,
    port: int,
    token: bytes,
    *,
    value_nbytes: int = VALUE_NBYTES,
    multi_tenant: bool = False,
    listen_fd: int | None = None,
) -> SharedServer:
    """Start a server, or with multi_tenant become an owner of the one on that port."""
    with _tenants_lock:
        if multi_tenant and listen_fd is None and port != 0:
            running = _tenants.get((os.getpid(), port))
            if running is not None and running.acquire():
                return running
        if listen_fd is None:
            listener = listen_on(host, port)
        else:
            listener = adopt_listener(listen_fd, port)
        try:
            server = SharedServer(listener, token, value_nbytes, shares_port=listen_fd is not None)
        except NativeError as error:
            raise DistNetworkError(f"cannot serve a store on {host}:{port}: {error}") from error
        if multi_tenant:
            _tenants[os.getpid(), server.port] = server
        return server
