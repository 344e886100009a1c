"""The server's limits: nobody can make it wait or grow, and when it is closed nothing is left."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from distdbg.export.http.access import AccessGate
from distdbg.export.http.pages import PageAnswer
from distdbg.export.http.server import MAX_CONNECTIONS, MAX_UNKNOWN, Server
from tests.metrics.scraping import await_that, get

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    """A server, and how often it was asked."""

    def __init__(self, *, patience_s: float = 0.4) -> None:
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.server = Server(
            {"/metrics": self._metrics, "/broken": self._break},
            AccessGate(own_uid=os.getuid()),
            patience_s=patience_s,
        )
        self.port = self.server.listen("127.0.0.1", 0)
        self.server.start()

    def _metrics(self, accept: str) -> PageAnswer:
        self.asked += 1
        self.may_answer.wait(120)
        return PageAnswer(b"up 1\n")

    def _break(self, accept: str) -> PageAnswer:
        raise RuntimeError("a page with a bug")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, str]:
        answer = get(f"http://127.0.0.1:{self.port}{path}", **headers)
        return answer.status, answer.text


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.may_answer.set()
    served.server.close()


def read_answer(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"\n"):
        more = sock.recv(65536)
        if not more:
            break
        data += more
    return data


def test_a_connection_takes_several_requests(served: Served) -> None:
    with served.connect() as sock:
        for _ in range(3):
            sock.sendall(GET)
            assert read_answer(sock).endswith(b"up 1\n")
    assert served.asked == 3


def test_head_says_how_long_it_would_be(served: Served) -> None:
    with served.connect() as sock:
        sock.sendall(GET.replace(b"GET", b"HEAD") + GET)
        text = b""
        while not text.endswith(b"up 1\n"):
            text += sock.recv(65536)
    assert text.count(b"Content-Length: 5") == 2
    assert text.count(b"up 1") == 1


def test_who_sends_nothing_or_half_a_request_is_ended(served: Served) -> None:
    with served.connect() as silent, served.connect() as half:
        half.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        assert silent.recv(1) == b""
        assert half.recv(1) == b""
    assert served.get() == (200, "up 1\n")


def test_of_too_many_connections_an_idle_one_makes_room(served: Served) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(served.connect()) for _ in range(MAX_CONNECTIONS)]
        for sock in idle:
            sock.sendall(GET)
            read_answer(sock)
        assert served.get() == (200, "up 1\n")


def test_who_comes_when_all_are_busy_is_told_so(served: Served) -> None:
    served.may_answer.clear()
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            sock = stack.enter_context(served.connect())
            sock.sendall(GET)
        await_that(lambda: served.asked == MAX_CONNECTIONS, "not all are being answered")
        assert served.get() == (503, "busy\n")
        served.may_answer.set()


def test_an_answer_that_is_on_its_way_arrives_though_the_server_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.export.http.server._LAST_S", 10.0)
    served.may_answer.clear()
    with served.connect() as asked, served.connect() as idle:
        asked.sendall(GET)
        await_that(lambda: served.asked, "it is not asked")
        end = threading.Thread(target=served.server.close)
        end.start()
        assert idle.recv(1) == b""  # it ends
        served.may_answer.set()
        assert read_answer(asked).endswith(b"up 1\n")
        end.join()


@pytest.mark.slow
def test_idle_strangers_keep_nobody_out() -> None:
    served = Served(patience_s=30.0)
    try:
        with ExitStack() as stack:
            for _ in range(10):
                idle = [stack.enter_context(served.connect()) for _ in range(2 * MAX_UNKNOWN)]
                idle[0].sendall(b"GET /metrics HTTP/1.1\r\n")
                assert served.get() == (200, "up 1\n")
            assert idle[0].recv(1) == b""  # the oldest has gone
    finally:
        served.server.close()


def test_who_may_not_read_takes_no_place_of_who_may() -> None:
    served = Served(patience_s=30.0)
    wrong = GET.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer no\r\n\r\n")
    try:
        with ExitStack() as stack:
            for _ in range(2 * MAX_UNKNOWN):
                sock = stack.enter_context(served.connect())
                sock.sendall(wrong)
                assert b" 401 " in read_answer(sock)
            assert served.get() == (200, "up 1\n")
    finally:
        served.server.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\na: " + b"b" * 70000 + b"\r\n\r\n", b"431"),
        (b"GET /metrics HTTP/3.0\r\n\r\n", b"505"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
)
def test_what_cannot_be_answered_gets_one_line(
    served: Served, request_: bytes, status: bytes
) -> None:
    with served.connect() as sock:
        sock.sendall(request_)
        text = read_answer(sock)
    head, _, body = text.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP"):
        assert head.split()[1] == status
        assert b"text/plain" in head
    else:  # not even a version was understood: what is said has no head
        body = text
    assert body.count(b"\n") == 1
    assert served.get() == (200, "up 1\n")


def test_a_page_that_fails_says_so_and_the_others_are_served(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert served.get("/broken")[0] == 500
    assert "a page with a bug" in caplog.text
    assert served.get() == (200, "up 1\n")


def test_health_needs_no_leave(served: Served) -> None:
    assert served.get("/healthz", Authorization="Bearer wrong") == (200, "ok\n")
    assert served.get(Authorization="Bearer wrong")[0] == 401


@pytest.mark.parametrize(("listens", "asked"), [("::1", "[::1]"), ("::", "127.0.0.1")])
def test_version_6_is_served_as_well_also_to_who_comes_by_version_4(
    listens: str, asked: str
) -> None:
    served = Served()
    try:
        try:
            port = served.server.listen(listens, 0)
        except OSError:
            pytest.skip("this kernel has no IPv6")
        assert get(f"http://{asked}:{port}/metrics").text == "up 1\n"
        assert served.get() == (200, "up 1\n")
    finally:
        served.server.close()


def test_a_closed_server_lets_go_of_port_and_threads_at_once(served: Served) -> None:
    with served.connect() as sock:
        sock.sendall(GET)
        read_answer(sock)
        served.server.close()
        assert sock.recv(1) == b""
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("distdbg-http")]
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", served.port))
