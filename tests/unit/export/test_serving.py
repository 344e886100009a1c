"""What serves metrics answers no request before it knows where it serves them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from distdbg.export.exporter.pages import MetricsExporter
from distdbg.export.http.server import Server
from distdbg.export.outlets.serving import ServerOutlet
from distdbg.launch.exports import ExportOptions
from tests.unit.agent.test_exporting import make_agent


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Connections with a request each, made as soon as somebody listens, answered at once if at all then."""
    made: list[socket.socket] = []
    listen = Server.listen

    def listen_and_be_asked(server: Server, host: str, port: int) -> int:
        port = listen(server, host, port)
        made.append(sock := socket.create_connection((host, port)))
        sock.sendall(b"GET /sd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        sock.settimeout(0.3)
        with suppress(TimeoutError):  # nobody answers yet
            sock.recv(1, socket.MSG_PEEK)
        sock.settimeout(30)
        return port

    monkeypatch.setattr(Server, "listen", listen_and_be_asked)
    yield made
    for sock in made:
        sock.close()


def serve_a_job(folder: Path) -> Callable[[], None]:
    agent = make_agent(folder)
    serving = ServerOutlet(agent, ExportOptions(listen=("127.0.0.1", 0)))

    def close() -> None:
        serving.close(0)
        agent.close()

    return close


def serve_runs(folder: Path) -> Callable[[], None]:
    return MetricsExporter([folder], ExportOptions(listen=("127.0.0.1", 0))).close


@pytest.mark.parametrize("serve", [serve_a_job, serve_runs])
def test_a_request_that_comes_as_soon_as_it_listens_is_answered(
    serve: Callable[[Path], Callable[[], None]], early: list[socket.socket], tmp_path: Path
) -> None:
    close = serve(tmp_path)
    try:
        [sock] = early
        with closing(sock.makefile("rb")) as file:
            head, _, body = file.read().partition(b"\r\n\r\n")
    finally:
        close()
    assert head.startswith(b"HTTP/1.1 200 "), (head, body)
    assert [f"127.0.0.1:{sock.getpeername()[1]}"] in [one["targets"] for one in json.loads(body)]
