"""An answer of a collector is read as far as it makes sense, and no longer than a request may take."""

from __future__ import annotations

import time

import pytest

from tests.endless import HEAD, endless

requests = pytest.importorskip("requests")

from distdbg.export.tracing.session import BoundedSession  # noqa: E402  # needs requests

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MOST_IN_BUFFERS = 32 << 20


@pytest.mark.parametrize(
    ("head", "more"), [(HEAD, b"x" * 65536), (CHUNKED, b"4000\r\n" + b"x" * 0x4000 + b"\r\n")]
)
def test_an_answer_without_end_is_cut_off(head: bytes, more: bytes) -> None:
    with (
        endless(head, more) as (url, sent),
        BoundedSession() as session,
        pytest.raises(requests.RequestException, match="more than 64 KiB"),
    ):
        session.post(url, data=b"spans", timeout=20)
    assert sent[0] < MOST_IN_BUFFERS


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200", b""])
def test_an_answer_that_comes_byte_by_byte_is_broken_off(head: bytes) -> None:
    began = time.monotonic()
    with endless(head, b"x", pause_s=0.02) as (url, _):
        with BoundedSession() as session, pytest.raises(requests.ReadTimeout, match="in time"):
            session.post(url, data=b"spans", timeout=0.2)
        assert time.monotonic() - began < 15  # of the 20 s that the answer takes


def test_an_exporter_sends_with_it_and_says_why_a_batch_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from distdbg.export.tracing.exporters import make_sender

    with endless(HEAD, b"x" * 65536) as (url, sent):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        exporter = make_sender("logs", "http/protobuf", run="r", host="h", began_ns=1)
        inner = exporter._exporter  # type: ignore[attr-defined]  # the request alone is of interest
        assert not inner._client.export(b"logs").success
        exporter.shutdown()
    assert sum(sent) < MOST_IN_BUFFERS
