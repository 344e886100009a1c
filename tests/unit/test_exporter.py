"""Runs in a registry of prometheus_client that is somebody else's."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from distdbg.errors import UsageError
from distdbg.export.exporter.one_run import RunMeter
from distdbg.export.metrics.families import FAMILIES
from distdbg.exporter import RunsCollector
from distdbg.record.folders import record_name, user_folder
from tests.support.record_builder import RecordBuilder


@pytest.fixture
def collectors() -> Iterator[list[RunsCollector]]:
    made: list[RunsCollector] = []
    yield made
    for one in made:
        one.close()


@pytest.fixture
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs of this user are, as long as the test goes on."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = user_folder()
    folder.mkdir(mode=0o700)
    return folder


def put_run(folder: Path, run: str, ranks: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        # No process has this number.
        builder = RecordBuilder(rank=rank, world_size=ranks, run=run, host="n14", pid=2**22 + 1)
        builder.add_group("world", ranks="0-1", size=ranks, rank=rank)
        builder.end(builder.issue("all_reduce"), after_ns=10)
        (folder / record_name(rank)).write_bytes(builder.to_bytes())
    return folder


def worlds(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.labels["run"]: sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name == "distdbg_world_size"
    }


def test_runs_are_served_beside_the_programs_own_metrics(
    tmp_path: Path, collectors: list[RunsCollector]
) -> None:
    folders = [put_run(tmp_path / name, name) for name in ("one", "two")]
    collectors.append(RunsCollector([folders[0], str(folders[1]), folders[0]]))
    registry = CollectorRegistry()
    Gauge("jobs_waiting", "Of the program itself.", registry=registry).set(3)
    registry.register(collectors[0])
    assert worlds(registry) == {"one": 2, "two": 2}
    words = generate_latest(registry).decode()
    assert "jobs_waiting 3.0" in words
    assert words.count("# TYPE distdbg_world_size gauge") == 1


def test_without_names_all_runs_of_this_user_are_served(
    own_runs: Path, collectors: list[RunsCollector]
) -> None:
    put_run(own_runs / "one", "one")
    collectors.append(RunsCollector())
    registry = CollectorRegistry()
    registry.register(collectors[0])
    assert worlds(registry) == {"one": 2}


def test_a_run_is_named_by_its_beginning(own_runs: Path, collectors: list[RunsCollector]) -> None:
    for name in ("first-1", "second-2"):
        put_run(own_runs / name, name)
    collectors.append(RunsCollector(["sec"]))
    registry = CollectorRegistry()
    registry.register(collectors[0])
    assert worlds(registry) == {"second-2": 2}
    with pytest.raises(UsageError, match="no run 'third'"):
        RunsCollector(["third"])


def test_to_register_reads_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collectors: list[RunsCollector]
) -> None:
    read: list[RunMeter] = []
    monkeypatch.setattr(RunMeter, "collect", lambda self: read.append(self) or ())
    collectors.append(RunsCollector([put_run(tmp_path / "one", "one")]))
    registry = CollectorRegistry()
    registry.register(collectors[0])
    assert not read
    assert len(list(collectors[0].describe())) == len(FAMILIES)
    with pytest.raises(ValueError, match="distdbg_world_size"):
        registry.register(RunsCollector([tmp_path]))
    generate_latest(registry)
    assert len(read) == 1


def test_a_folder_may_be_named_before_its_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collectors: list[RunsCollector]
) -> None:
    monkeypatch.setattr("distdbg.export.exporter.runs._KEPT_S", 0.0)
    folder = tmp_path / "later"
    collectors.append(RunsCollector([folder]))
    registry = CollectorRegistry()
    registry.register(collectors[0])
    assert worlds(registry) == {}
    folder.mkdir()
    assert worlds(registry) == {}
    put_run(folder, "later")
    assert worlds(registry) == {"later": 2}
    (folder / record_name(0)).unlink()
    assert worlds(registry) == {"later": 2}, "what is over stays as it was"


def test_several_threads_get_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collectors: list[RunsCollector]
) -> None:
    monkeypatch.setattr("distdbg.export.exporter.runs._KEPT_S", 0.0)
    folders = [put_run(tmp_path / f"run{at}", f"run{at}", ranks=4) for at in range(4)]
    collectors.append(RunsCollector(folders))
    registry = CollectorRegistry()
    registry.register(collectors[0])
    start = threading.Barrier(8, timeout=30)
    found: list[dict[str, float]] = []

    def scrape() -> None:
        start.wait()
        found.extend(worlds(registry) for _ in range(3))

    threads = [threading.Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [{f"run{at}": 4.0 for at in range(4)}] * 24


def test_runs_that_cannot_be_read_in_time_are_said_once_and_spare_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, collectors: list[RunsCollector]
) -> None:
    class Stuck:
        def metrics(self) -> None:
            return None

        def close(self) -> None:
            """Nothing is held."""

    collectors.append(RunsCollector([put_run(tmp_path / "one", "one")]))
    collectors[0]._runs = Stuck()  # type: ignore[assignment]
    registry = CollectorRegistry()
    Gauge("jobs_waiting", "Of the program itself.", registry=registry)
    registry.register(collectors[0])
    for _ in range(2):
        assert b"jobs_waiting" in generate_latest(registry)
    assert [one.message.startswith("the runs cannot be read") for one in caplog.records] == [True]


def test_what_is_closed_holds_no_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    collector = RunsCollector([put_run(tmp_path / "one", "one")])
    assert list(collector.collect())
    collector.close()
    collector.close()
    assert len(os.listdir("/proc/self/fd")) == before
