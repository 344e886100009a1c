"""An HTTP request of ours that ends in time: a timeout of a socket is for each read alone.

Whoever answers a byte now and then would hold a thread for ever. So the socket is shut down when the time is
over, whatever is being read of it then.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from typing import Any

#: As much of an answer as is read; what matters of one is short.
MAX_ANSWER_NBYTES = 1 << 16


class RequestTimer:
    """Times one request after the other; a connection gives it its socket before it reads the answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_over = False
        """Whether the time of this request is."""

    def holds(self, sock: socket.socket | None) -> None:
        """This is what is read of from now on. TimeoutError when it is too late."""
        with self._lock:
            if self.is_over:
                raise TimeoutError("no answer in time")
            self._socket = sock

    @contextmanager
    def ended_after(self, timeout_s: float) -> Iterator[None]:
        """TimeoutError instead of any OSError that comes of being too late."""
        with self._lock:
            self._socket, self.is_over = None, False
        timer = threading.Timer(timeout_s, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self._socket = None

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class Watched:
    """A connection whose socket its watch holds, also when it lets go of it for `Connection: close`."""

    watch: RequestTimer

    def getresponse(self) -> Any:
        self.watch.holds(getattr(self, "sock", None))
        return super().getresponse()  # type: ignore[misc]  # of the connection beside it


class WatchedConnection(Watched, HTTPConnection): ...


class WatchedSecureConnection(Watched, HTTPSConnection): ...
