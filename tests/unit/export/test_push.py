from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from distdbg.errors import ConfigError, DistNetworkError
from distdbg.export.metrics.push import Gateway, group_path
from distdbg.export.metrics.text import to_text
from tests.endless import HEAD, endless
from tests.unit.export.test_text import whole

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def gateway(*answer: bytes, pause_s: float = 0.0) -> Iterator[tuple[str, bytearray]]:
    """Takes one request and says the parts of its answer with a pause between; what it was sent."""
    taken = bytearray()
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                size = None
                while size is None or len(taken) < size:
                    taken.extend(connection.recv(1 << 16))
                    head, found, _ = bytes(taken).partition(b"\r\n\r\n")
                    if found and size is None:
                        length = head.lower().partition(b"content-length:")[2].split()[0]
                        size = len(head) + 4 + int(length)
                try:
                    for part in answer:
                        connection.sendall(part)
                        is_over.wait(pause_s)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", taken
        finally:
            is_over.set()
            thread.join(60)


def test_a_push_replaces_the_metrics_of_this_host_and_run() -> None:
    with gateway(OK) as (address, taken):
        Gateway(f"http://{address}/prefix/").push(whole(), 60)
    head, _, body = bytes(taken).partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /prefix/metrics/job/distdbg/run/0412/host/n01 HTTP/1.1\r\n")
    assert b"text/plain; version=0.0.4" in head
    assert body == to_text(whole())


def test_a_password_is_sent_and_never_told() -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    with gateway(refusal) as (address, taken), pytest.raises(DistNetworkError) as caught:
        Gateway(f"http://me:s%3Acret@{address}").push(whole(), 60)
    assert b"Authorization: Basic bWU6czpjcmV0" in taken
    assert "cret" not in str(caught.value)
    assert "401 Unauthorized" in str(caught.value)


def test_what_the_gateway_refuses_is_said() -> None:
    words = b"pushed metrics are invalid\nmore"
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(words), words)
    with gateway(answer) as (address, _), pytest.raises(DistNetworkError) as caught:
        Gateway(address).push(whole(), 60)
    assert "said 400 Bad Request" in caught.value.what
    assert caught.value.details == ["pushed metrics are invalid"]


def test_a_gateway_that_is_not_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(DistNetworkError, match=r"(?i)within 5 s: connection refused"):
        Gateway(address).push(whole(), 4.99939)


@pytest.mark.parametrize("part", [b"", b"H"])
def test_a_gateway_that_is_slow_takes_no_longer_than_it_may(part: bytes) -> None:
    began = time.monotonic()
    with gateway(*([part] * 1200), pause_s=0.05) as (address, _):
        with pytest.raises(DistNetworkError, match="no answer in time"):
            Gateway(address).push(whole(), 0.2)
        assert time.monotonic() - began < 30  # of the 60 s that the answer takes


def test_a_redirect_is_not_followed() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with gateway(answer) as (address, _), pytest.raises(DistNetworkError, match="302"):
        Gateway(address).push(whole(), 60)


@pytest.mark.parametrize("url", ["", "ftp://gateway", "http://", "http://a:b:c", "http://h:99999"])
def test_what_is_no_url_is_said_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError, match="not the URL of a Pushgateway"):
        Gateway(url)


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ("0412", "/run/0412"),
        ("a b%", "/run/a%20b%25"),
        ("a/b", "/run@base64/YS9i"),
        ("", "/run@base64/="),
        ("..", "/run@base64/Li4="),
    ],
)
def test_a_name_of_any_kind_is_part_of_the_path(run: str, path: str) -> None:
    assert group_path(run, "n01") == f"/metrics/job/distdbg{path}/host/n01"


def test_a_slow_answer_after_which_the_gateway_closes_ends_in_time_too() -> None:
    began = time.monotonic()
    with endless(HEAD, b"x", pause_s=0.02) as (url, _):
        with pytest.raises(DistNetworkError, match="no answer in time"):
            Gateway(url).push(whole(), 0.2)
        assert time.monotonic() - began < 15  # of the 20 s that the answer takes
