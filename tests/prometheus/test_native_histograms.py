"""A real Prometheus takes what is written here: as protobuf with native histograms, and as OpenMetrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from distdbg.export.metrics.collect import collect
from distdbg.export.metrics.negotiate import negotiate
from distdbg.export.metrics.totals import Accumulator
from tests.prometheus.started import ask, free_address, poll_for, started
from tests.unit.export.made_up import buckets, count, host, job_of, rank

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

TRACE = "0af7651916cd43dd8448eb211c80319c"
CONFIG = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: distdbg
    honor_labels: true
    static_configs: [{{targets: ["{address}"]}}]
"""


@contextmanager
def served() -> Iterator[tuple[str, set[str]]]:
    """A host whose ranks call an op of 1.5 s again and again; and the types that were asked for."""
    lock = threading.Lock()
    totals = Accumulator()
    types: set[str] = set()
    calls = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal calls
            with lock:
                calls += 4
                # In the bucket from 1.07 to 2.15 s.
                times = buckets(b30=calls)
                row = count(
                    ended=calls,
                    duration_ns=calls * 1_500_000_000,
                    duration_buckets=times,
                    wait_buckets=times,
                )
                facts = host(rank(0, [row]))
                totals.take(facts)
                exemplars = {("all_reduce", "dp"): [(1_500_000_000, TRACE, time.time())]}
                metrics = collect(facts, totals, job_of([totals]), exemplars)
            writer = negotiate(self.headers["Accept"])
            types.add(writer.content_type.partition(";")[0])
            body = writer.write(metrics)
            self.send_response(200)
            self.send_header("Content-Type", writer.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", types
        finally:
            server.shutdown()
            thread.join(30)


@contextmanager
def prometheus(folder: Path, target: str, *features: str) -> Iterator[str]:
    (folder / "prometheus.yaml").write_text(CONFIG.format(address=target))
    address = free_address()
    flags = [f"--enable-feature={','.join(features)}"] if features else []
    with started(
        "prometheus",
        "--config.file=prometheus.yaml",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        *flags,
        address=address,
        ready="/-/ready",
        folder=folder,
    ):
        yield address


def value(address: str, query: str) -> float | None:
    found = ask(address, "query", query=query)["result"]
    return float(found[0]["value"][1]) if found else None


def all_is_up(address: str) -> bool:
    """Nothing of the target was refused."""
    (target,) = ask(address, "targets")["activeTargets"]
    assert not target["lastError"]
    return target["health"] == "up"


def test_prometheus_takes_native_histograms(tmp_path: Path) -> None:
    with (
        served() as (target, types),
        prometheus(tmp_path, target, "native-histograms", "exemplar-storage") as address,
    ):
        name = "distdbg_op_duration_seconds"
        labels = 'run="0412",host="n01",kind="all_reduce",group="dp"'
        series = f"{name}{{{labels}}}"
        rate = f"rate({series}[5s])"
        poll_for(lambda: (value(address, f"histogram_count({rate})") or 0) > 0, "two scrapes")
        assert all_is_up(address)
        assert types == {"application/vnd.google.protobuf"}
        # Both at one moment: the sum is exact.
        mean = value(address, f"histogram_sum({series}) / histogram_count({series})")
        assert mean == pytest.approx(1.5)
        # It is told as from 1 to 2 s.
        for share in (0.01, 0.5, 0.99):
            found = value(address, f"histogram_quantile({share}, {rate})")
            assert found is not None
            assert 1 <= found <= 2
        assert value(address, "distdbg_ops_total") is not None
        assert value(address, "distdbg_rank_up") == 1
        now = time.time()
        found = ask(address, "query_exemplars", query=name, start=str(now - 60), end=str(now + 60))
        reported = {one["labels"]["trace_id"] for each in found for one in each["exemplars"]}
        assert reported == {TRACE}


def test_prometheus_takes_openmetrics_with_exemplars(tmp_path: Path) -> None:
    with (
        served() as (target, types),
        prometheus(tmp_path, target, "exemplar-storage") as address,
    ):
        name = "distdbg_op_duration_seconds_bucket"
        poll_for(lambda: value(address, f'rate({name}{{le="+Inf"}}[5s]) > 0'), "two scrapes")
        assert all_is_up(address)
        assert types == {"application/openmetrics-text"}
        found = value(address, f"histogram_quantile(0.5, rate({name}[5s]))")
        assert found is not None
        assert 1.07 <= found <= 4.3
        now = time.time()
        exemplars = ask(
            address, "query_exemplars", query=name, start=str(now - 60), end=str(now + 60)
        )
        reported = {one["labels"]["trace_id"] for each in exemplars for one in each["exemplars"]}
        assert reported == {TRACE}
        described = ask(address, "metadata", metric="distdbg_ops")
        assert described["distdbg_ops"][0]["type"] == "counter"
