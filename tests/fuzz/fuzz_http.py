"""Requests to the server of metrics, and answers of a collector, a little wrong: the next one is served."""

from __future__ import annotations

import os
import random
import socket
import threading
from contextlib import closing, suppress

from distdbg.errors import DistNetworkError
from distdbg.export.http.access import AccessGate
from distdbg.export.http.pages import PageAnswer
from distdbg.export.http.server import Server
from distdbg.export.otel.collector import OtlpCollector
from tests.fuzz import harness

REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain;version=0.0.4;q=0.5,*/*\r\n\r\n",
    b"GET /metrics HTTP/1.0\r\n\r\n",
    b"HEAD /sd?a=b HTTP/1.1\r\nHost: [::1]:9400\r\nAccept-Encoding: gzip;q=1.0, identity\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 59\r\n\r\n"
    b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"x"}}',
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n",
)
GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def one(chance: random.Random) -> None:
    _ask(chance)
    _answer(chance)


def _ask(chance: random.Random) -> None:
    def page(accept: str) -> PageAnswer:
        return PageAnswer(accept.encode("utf-8", "replace"))

    pages = dict.fromkeys(("/metrics", "/sd", "/"), page)
    server = Server(pages, AccessGate(own_uid=os.getuid(), token=b"secret"), patience_s=2.0)
    with closing(server):
        port = server.listen("127.0.0.1", 0)
        server.start()
        for _ in range(4):
            words = harness.spoil(
                b"".join(chance.choices(REQUESTS, k=chance.randint(1, 3))), chance
            )
            with socket.create_connection(("127.0.0.1", port), 5) as sock:
                with suppress(OSError):  # refused half-way: ENOTCONN is no ConnectionError
                    sock.sendall(words)
                    sock.shutdown(socket.SHUT_WR)
                _read(sock)
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(GOOD)
            assert _read(sock).startswith(b"HTTP/1.1 200 ")


def _read(sock: socket.socket) -> bytes:
    data = b""
    with suppress(ConnectionError):
        while more := sock.recv(1 << 16):
            data += more
    return data


def _answer(chance: random.Random) -> None:
    answer = harness.spoil(chance.choice(ANSWERS), chance)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                sock, _ = listener.accept()
                with sock:
                    sock.settimeout(5.0)
                    sock.recv(1 << 16)
                    sock.sendall(answer)
                    sock.shutdown(socket.SHUT_WR)
                    _read(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with suppress(DistNetworkError):
                collector = OtlpCollector(
                    f"http://127.0.0.1:{listener.getsockname()[1]}", patience_s=0.3
                )
                collector.write(b"{}")
                assert isinstance(collector.why, str)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


if __name__ == "__main__":
    harness.main(one, "fuzz_http", __doc__)
