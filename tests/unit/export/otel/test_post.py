"""Spans of a run, sent to a collector: one that takes them, one that is busy, one that says no, and none."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from distdbg.cli.export import main
from distdbg.errors import DistNetworkError, UsageError
from distdbg.export.otel.collector import OtlpCollector, read_headers, to_endpoint
from distdbg.export.otel.file import write
from tests.endless import HEAD, endless
from tests.support.ports import free_port
from tests.unit.export.made_run import MadeRun, every_kind


class Received:
    """What came, and what is to be answered: the last of them from then on."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers) or [(200, b"{}")]
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""


@contextmanager
def receiving(received: Received) -> Iterator[Received]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.paths.append(self.path)
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, answer = (
                received.answers.pop(0) if len(received.answers) > 1 else received.answers[0]
            )
            if status == 200:
                received.requests.append(json.loads(gzip.decompress(body)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


class Clock:
    """Passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def test_the_command_sends_a_run_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20secret, other=1")
    every_kind().save(tmp_path)
    with receiving(Received()) as received:
        assert main([str(tmp_path), "--to", "otlp", "--output", received.url]) == 0
    assert set(received.paths) == {"/v1/traces"}
    assert len(received.requests) == 4
    assert all(request["resourceSpans"] for request in received.requests)
    assert received.headers[0]["api-key"] == "a secret"
    assert f"of 4 ranks to {received.url}/v1/traces" in capsys.readouterr().err


def test_a_busy_collector_is_asked_again(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier")
    clock = Clock()
    with receiving(Received((503, b""), (429, b""), (200, b"{}"))) as received:
        collector = OtlpCollector(received.url, clock=clock, sleep=clock.sleep)
        write(run.open(tmp_path), collector)
    assert (collector.sent, clock.slept) == (1, [0.5, 1.0])


def test_a_collector_that_says_no_ends_it(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier")
    with receiving(Received((400, b""))) as received, pytest.raises(DistNetworkError) as raised:
        write(run.open(tmp_path), OtlpCollector(received.url))
    assert "does not take spans: HTTP 400" in str(raised.value)
    assert "--output FILE" in str(raised.value)
    assert len(received.paths) == 1


def test_nobody_is_sent_elsewhere(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier")
    with receiving(Received((302, b""))) as received, pytest.raises(DistNetworkError) as raised:
        write(run.open(tmp_path), OtlpCollector(received.url))
    assert "HTTP 302" in str(raised.value)


def test_a_collector_that_is_not_there_ends_it_after_a_while(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier")
    clock = Clock()
    collector = OtlpCollector(f"http://127.0.0.1:{free_port()}", clock=clock, sleep=clock.sleep)
    with pytest.raises(DistNetworkError) as raised:
        write(run.open(tmp_path), collector)
    assert "Connection refused" in str(raised.value)
    assert 10 < clock.now_s <= 30


def test_spans_that_were_rejected_are_counted(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.all("barrier")
    answer = json.dumps({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}})
    with receiving(Received((200, answer.encode()))) as received:
        collector = OtlpCollector(received.url)
        write(run.open(tmp_path), collector)
    assert (collector.sent, collector.rejected, collector.why) == (2, 4, "too old")


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("https://host/otlp/", "https://host/otlp/v1/traces"),
        ("http://host:4318/v1/traces", "http://host:4318/v1/traces"),
    ],
)
def test_an_endpoint_has_the_path_of_spans(url: str, endpoint: str) -> None:
    assert to_endpoint(url) == endpoint


def test_a_url_without_a_host_is_refused() -> None:
    with pytest.raises(UsageError, match="has no host"):
        OtlpCollector("http://")


def test_headers_are_read_as_opentelemetry_does() -> None:
    assert read_headers("a=1, b=x%3Dy,,broken") == {"a": "1", "b": "x=y"}
    assert read_headers("") == {}


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 200 OK\r\nA: "])
def test_an_answer_that_comes_byte_by_byte_is_broken_off(head: bytes) -> None:
    with endless(head, b"x", pause_s=0.02) as (url, _):
        collector = OtlpCollector(url, patience_s=0.2)
        with pytest.raises(DistNetworkError, match="no answer in time"):
            collector.write(b"{}")


def test_an_answer_without_end_is_read_as_far_as_it_makes_sense() -> None:
    with endless(HEAD, b"x" * 65536) as (url, sent):
        assert OtlpCollector(url).write(b"{}") == 2
    assert sent[0] < 32 << 20


def test_a_redirect_to_what_is_no_address_is_an_error_as_any_other() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://[/\r\nContent-Length: 0\r\n\r\n"
    with (
        endless(head, b"", pause_s=0.02) as (url, _),
        pytest.raises(DistNetworkError, match="HTTP 302 Found"),
    ):
        OtlpCollector(url).write(b"{}")
