"""The server: one thread that accepts, and one for each connection, of which there are few.

Nobody can make it wait or grow: who takes too long is ended. Connections of who may read have places of
their own, and so have those of which that is not known yet; of too many of these the oldest is ended, of too
many of those the one that has been idle the longest, or else the new one is told that all are busy. It ends
with `close`, and then its ports are free at once.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from distdbg.export.http.access import AccessGate
from distdbg.export.http.pages import Page
from distdbg.export.http.peers import Ends
from distdbg.export.http.request import PATIENCE_S, HttpConnection
from distdbg.secure.guard import Guard

#: Connections of clients that may read.
MAX_CONNECTIONS: Final = 8
#: Connections of clients that may not, or of which that is not known yet. A scraper asks at once.
MAX_UNKNOWN: Final = 16
_LOOK_S: Final = 1.0
#: How long threads may take to end.
_END_S: Final = 1.0
#: How long answers that are on their way may take then.
_LAST_S: Final = 0.3
_BACKLOG: Final = 16

_log = logging.getLogger("distdbg.export")


class Server:
    """Serves pages at one address or more, from `start` until it is closed."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        gate: AccessGate,
        *,
        patience_s: float = PATIENCE_S,
        guard: Guard | None = None,
    ) -> None:
        """`patience_s`: how long a request may take to come, and its answer to be made and read.
        `guard`: serves HTTPS; closed with the server."""
        self._patience_s = patience_s
        self._pages = pages
        self._gate = gate
        self._guard = guard
        self._lock = threading.Lock()
        self._listening: list[socket.socket] = []
        self._connections: dict[HttpConnection, threading.Thread] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="distdbg-http", daemon=True)

    def listen(self, host: str, port: int) -> int:
        """Serve there too; returns the port. OSError when it cannot be."""
        sock = open_socket(host, port)
        with self._lock:
            self._listening.append(sock)
        if self._thread.is_alive():
            self._ring()
        return int(sock.getsockname()[1])

    def start(self) -> None:
        """Begin to answer: whoever connected before has waited until the pages know where they are served."""
        self._thread.start()

    def close(self) -> None:
        """End all connections and threads. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.is_alive():
            self._ring()
            self._thread.join(_END_S)
        with self._lock:
            listening, self._listening = self._listening, []
            connections = dict(self._connections)
        for sock in listening:
            sock.close()
        # The answer that is on its way has the last numbers of a job that ends.
        for connection in connections:
            connection.is_last = True
            if connection.is_idle or not connection.has_asked:
                connection.end()
        until = time.monotonic() + _LAST_S
        for thread in connections.values():
            thread.join(max(0.0, until - time.monotonic()))
        for connection in connections:
            connection.end()
        until = time.monotonic() + _END_S
        for thread in connections.values():
            thread.join(max(0.0, until - time.monotonic()))
        if self._guard is not None:
            self._guard.close()
        if not self._thread.is_alive():
            os.close(self._bell)

    # ------------------------------------------------------------------------------- the thread that accepts

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._turn()
        except Exception:  # noqa: BLE001  # the job is none the worse
            _log.exception("metrics are served no more")

    def _turn(self) -> None:
        with self._lock:
            listening = list(self._listening)
            is_busy = bool(self._connections)
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        of_fd = {sock.fileno(): sock for sock in listening}
        for fd in of_fd:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(min(_LOOK_S, self._patience_s) * 1e3 if is_busy else None):
            if fd in of_fd:
                self._accept(of_fd[fd])
            else:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
        self._end_slow()

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except OSError:
            if not self._is_closed:
                time.sleep(0.01)  # no descriptors: not again and again at once
            return
        try:
            ends = Ends.of(sock)
        except OSError:  # it is gone already
            sock.close()
            return
        self._make_room()
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._guard is not None:
            sock = self._guard.wrap(sock, is_server=True)
        connection = HttpConnection(sock, ends, self._let_in)
        thread = threading.Thread(
            target=self._serve, args=(connection,), name="distdbg-http-serve", daemon=True
        )
        with self._lock:
            self._connections[connection] = thread
        try:
            thread.start()
        except RuntimeError:  # no more threads
            with self._lock:
                del self._connections[connection]
            sock.close()

    def _serve(self, connection: HttpConnection) -> None:
        try:
            connection.serve(self._pages, self._gate)
        except Exception:  # noqa: BLE001  # of one page; the others are none the worse
            _log.exception("a request was not answered")
        finally:
            with self._lock:
                self._connections.pop(connection, None)

    def _make_room(self) -> None:
        """Drop the oldest connection of which nothing is known, for one more."""
        with self._lock:
            unknown = [one for one in self._connections if not one.is_let_in]
            if len(unknown) < MAX_UNKNOWN:
                return
            oldest = min(unknown, key=lambda one: one.came)
            self._connections.pop(oldest)
        oldest.end()

    def _let_in(self, connection: HttpConnection) -> bool:
        """Give a place to one that may read; False: all others are busy."""
        with self._lock:
            if connection.is_let_in:
                return True
            inside = [one for one in self._connections if one.is_let_in]
            if len(inside) >= MAX_CONNECTIONS:
                idle = [one for one in inside if one.is_idle]
                if not idle:
                    return False
                longest = min(idle, key=lambda one: one.since)
                self._connections.pop(longest)
                longest.end()
            connection.is_let_in = True
            return True

    def _end_slow(self) -> None:
        late = time.monotonic() - self._patience_s
        with self._lock:
            slow = [one for one in self._connections if one.since < late]
        for connection in slow:
            connection.end()

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)


def open_socket(host: str, port: int) -> socket.socket:
    """Listen there. OSError when it cannot be."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # What is left of connections of a server that is gone does not count.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
