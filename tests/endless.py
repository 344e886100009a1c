"""A server of HTTP whose answers have no end, or come a byte now and then."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@contextmanager
def endless(head: bytes, more: bytes, *, pause_s: float = 0.0) -> Iterator[tuple[str, list[int]]]:
    """Its address, and how many bytes each connection has taken of the answer."""
    sent: list[int] = []
    is_over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket, at: int) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            seen = b""
            while b"\r\n\r\n" not in seen:
                seen += connection.recv(1 << 16)
            connection.sendall(head)
            until = time.monotonic() + 20
            while not is_over.wait(pause_s) and time.monotonic() < until:
                connection.sendall(more)
                sent[at] += len(more)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                sent.append(0)
                threads.append(threading.Thread(target=serve, args=(connection, len(sent) - 1)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", sent
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()
