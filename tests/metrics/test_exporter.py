"""`distdbg exporter`: runs that are over, and those that live without an agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from distdbg.exporter import RunsCollector
from distdbg.record.folders import user_folder
from tests.metrics.scraping import await_that, get, get_numbers, samples, value_of
from tests.support.jobs import RunningJob

ROOT = Path(__file__).resolve().parents[2]
StartJob = Callable[..., RunningJob]
Go = Callable[[str], None]

SHORT = "dist.destroy_process_group()\n"
WAITS = "wait_for('go')\ndist.destroy_process_group()\n"


def command(folder: Path, *argv: str) -> tuple[list[str], dict[str, str]]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DISTDBG_")}
    environ |= {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return [sys.executable, "-m", "distdbg", "exporter", *argv], environ


def once(folder: Path, *argv: str) -> str:
    words, environ = command(folder, "--once", "-", *argv)
    done = subprocess.run(
        words, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def exporting(folder: Path, port: int, *argv: str) -> Iterator[str]:
    words, environ = command(folder, "--port", str(port), *argv)
    process = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert said == f"metrics: http://127.0.0.1:{port}/metrics\n"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(120)
        rest = process.stderr.read()
        process.stderr.close()
    assert (code, rest) == (0, "")


@pytest.mark.slow
def test_a_run_that_is_over_keeps_its_last_numbers(start_job: StartJob, job_folder: Path) -> None:
    job = start_job("if rank == 1:\n    os.kill(os.getpid(), 9)\nwait_for('go')\n")
    assert job.wait().code != 0
    run = job.run_folder.name
    text = once(job_folder, run)
    assert value_of(text, "distdbg_ops_total", run=run, kind="all_reduce") == 40
    assert value_of(text, "distdbg_rank_up", run=run) == 0
    # The launcher has ended the other one.
    assert value_of(text, "distdbg_dead_ranks", run=run) == 1
    assert value_of(text, "distdbg_ranks", run=run, state="dead") == 1
    assert value_of(text, "distdbg_ranks", run=run, state="ended") == 1
    assert value_of(text, "distdbg_world_size", run=run) == 2
    assert once(job_folder, str(job.run_folder)).count("distdbg_rank_up{") == 2


@pytest.mark.slow
def test_new_runs_are_served_by_themselves(
    start_job: StartJob, job_folder: Path, free_port: int, go: Go
) -> None:
    first = start_job(SHORT)
    assert first.wait().code == 0
    runs = {first.run_folder.name}
    with exporting(job_folder, free_port) as url:
        assert {labels["run"] for labels, _ in samples(get_numbers(url))["distdbg_rank_up"]} == runs
        second = start_job(WAITS, "--no-agent")

        def read() -> str | None:
            text = get_numbers(url)
            return text if value_of(text, "distdbg_rank_up") == 2 else None

        text = await_that(read, "the run that lives is not served")
        run = second.run_folder.name
        assert value_of(text, "distdbg_rank_up", run=run) == 2
        go("go")
        assert second.wait().code == 0

        def read_end() -> str | None:
            text = get_numbers(url)
            return text if value_of(text, "distdbg_ranks", state="ended") == 4 else None

        text = await_that(read_end, "its end is not seen")
        assert value_of(text, "distdbg_ops_total", run=run, kind="all_reduce") == 40
        assert [one for one in samples(text) if one == "distdbg_rank_up"] == ["distdbg_rank_up"]


@pytest.mark.slow
def test_a_run_whose_agent_serves_is_named_and_not_served_twice(
    start_job: StartJob, job_folder: Path, free_port: int
) -> None:
    job = start_job(WAITS, "--metrics-port", "0", ranks=1)

    def has_said() -> bool:
        logs = job.run_folder.glob("agent-*.log")
        return any("metrics: http" in path.read_text() for path in logs)

    await_that(has_said, "the agent does not serve")
    with exporting(job_folder, free_port) as url:
        run = job.run_folder.name
        found = await_that(
            lambda: found if run in (found := get(f"{url}/sd").text) else None, "it is not named"
        )
        assert f"127.0.0.1:{free_port}" in found
        assert run not in get_numbers(url)


@pytest.mark.slow
def test_a_collector_leaves_a_run_to_the_agent_that_serves_it_unless_it_is_named(
    start_job: StartJob, job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(job_folder))
    folder = user_folder(str(job_folder))
    runs = {"served": 1, "alone": 1}
    start_job(WAITS, "--metrics-port", "0", ranks=1, DISTDBG_RUN="served")
    start_job(WAITS, ranks=1, DISTDBG_RUN="alone")
    await_that(lambda: worlds(*(folder / run for run in runs)) == runs, "not all runs")
    await_that(lambda: worlds() == {"alone": 1}, "not the one run that nobody serves")
    assert worlds("served") == {"served": 1}


def worlds(*runs: str | Path) -> dict[str, float]:
    with closing(RunsCollector(runs)) as collector:
        return {
            sample.labels["run"]: sample.value
            for metric in collector.collect()
            for sample in metric.samples
            if sample.name == "distdbg_world_size"
        }


@pytest.mark.slow
def test_a_port_that_somebody_has_is_an_error(job_folder: Path, free_port: int) -> None:
    with exporting(job_folder, free_port):
        words, environ = command(job_folder, "--port", str(free_port))
        done = subprocess.run(
            words, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode != 0
    assert "is held by" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_folder_that_another_run_takes_is_read_anew(
    start_job: StartJob, job_folder: Path, tmp_path: Path, free_port: int
) -> None:
    folder = tmp_path / "run"
    where = ["--run-dir", str(folder), "--no-agent"]
    assert start_job(SHORT, *where, DISTDBG_RUN="first").wait().code == 0
    with exporting(job_folder, free_port, str(folder)) as url:
        text = get_numbers(url)
        assert value_of(text, "distdbg_ranks", run="first", state="ended") == 2
        start_job(WAITS, *where, DISTDBG_RUN="second")
        text = await_that(
            lambda: (
                text
                if value_of(text := get_numbers(url), "distdbg_rank_up", run="second")
                else None
            ),
            "the second run is not served",
        )
        assert 'run="first"' not in text


def test_a_folder_without_records_is_an_error_where_they_are_written_once(tmp_path: Path) -> None:
    words, environ = command(tmp_path, "--once", "run.prom", str(tmp_path))
    done = subprocess.run(
        words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 7
    assert done.stderr.startswith(f"RecordError: {tmp_path}: there are no records")
    assert not (tmp_path / "run.prom").exists()
