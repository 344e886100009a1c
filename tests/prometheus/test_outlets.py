"""What is left for others to serve: by a real Pushgateway, and by a real node_exporter."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distdbg.export.metrics.push import Gateway, group_path
from distdbg.export.metrics.textfile import write_textfile
from tests.prometheus.started import free_address, get, started
from tests.unit.export.test_text import whole

pytestmark = pytest.mark.prometheus


def ours(words: str) -> dict[tuple[str, tuple], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(words)
        for sample in family.samples
        if family.name.startswith("distdbg_")
    }


def labelled(found: dict[tuple[str, tuple], float], name: str) -> list[dict[str, str]]:
    return [dict(labels) for one, labels in found if one == name]


def test_a_gateway_serves_what_was_pushed_last(tmp_path: Path) -> None:
    address = free_address()
    with started(
        "prometheus-pushgateway",
        f"--web.listen-address={address}",
        address=address,
        ready="/-/ready",
        folder=tmp_path,
    ):
        for run, name in (("0412", "n01"), ("0412", "n01"), ("0412", "n02"), ('a/b \\"é', "")):
            Gateway(f"http://{address}").push(whole(run, name), 10)
        found = ours(get(f"http://{address}/metrics"))
        worlds = labelled(found, "distdbg_world_size")
        assert {(one["run"], one.get("host", "")) for one in worlds} == {
            ("0412", "n01"),
            ("0412", "n02"),
            ('a/b \\"é', ""),
        }
        assert {one["job"] for one in worlds} == {"distdbg"}
        assert group_path("0412", "n01") == "/metrics/job/distdbg/run/0412/host/n01"


def test_node_exporter_serves_the_file_while_it_is_there(tmp_path: Path) -> None:
    address = free_address()
    metrics = tmp_path / "textfile"
    metrics.mkdir()
    write_textfile(metrics, whole())
    write_textfile(metrics, whole("another"))
    (metrics / "distdbg_0412@n01.prom.77.tmp").write_text("half a f")
    with started(
        "prometheus-node-exporter",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={metrics}",
        f"--web.listen-address={address}",
        address=address,
        ready="/metrics",
        folder=tmp_path,
    ):
        words = get(f"http://{address}/metrics")
        assert "node_textfile_scrape_error 0" in words
        runs = {one["run"] for one in labelled(ours(words), "distdbg_world_size")}
        assert runs == {"0412", "another"}
        (metrics / "distdbg_0412@n01.prom").unlink()
        found = ours(get(f"http://{address}/metrics"))
        assert {one["run"] for one in labelled(found, "distdbg_world_size")} == {"another"}
