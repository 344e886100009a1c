"""A stranger in the middle: what comes to its port goes on to another, byte by byte or a little changed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def relay(
    port: int, *, claims: int = 0, change: Callable[[bytes], bytes] | None = None
) -> Iterator[tuple[int, Callable[[int], None]]]:
    """The port that it listens on, and how to tell it another to go on to.

    `claims`: the port that it writes over its own in what a client says, where an address is in bytes;
    `change`: whatever else it does to that.
    """
    to = [port]
    threads: list[threading.Thread] = []
    ends: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))
    own = int(listener.getsockname()[1])

    def alter(data: bytes) -> bytes:
        if claims:
            home = socket.inet_aton("127.0.0.1")
            data = data.replace(home + own.to_bytes(2, "big"), home + claims.to_bytes(2, "big"))
        return data if change is None else change(data)

    def pump(source: socket.socket, sink: socket.socket, how: Callable[[bytes], bytes]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(how(data))
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", to[0]), 5)
                ends.extend((client, server))
                for source, sink, how in ((client, server, alter), (server, client, bytes)):
                    threads.append(threading.Thread(target=pump, args=(source, sink, how)))
                    threads[-1].start()

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield own, lambda port: to.__setitem__(0, port)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        threads[0].join(10)
        for sock in ends:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads[1:]:
            thread.join(10)
        for sock in (*ends, listener):
            sock.close()
