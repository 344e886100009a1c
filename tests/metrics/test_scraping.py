"""/metrics of jobs that run: what is there, who may read it, and what becomes of it when something ends."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.metrics.scraping import Answer, await_that, get, get_numbers, samples, value_of
from tests.support.jobs import RunningJob

StartJob = Callable[..., RunningJob]
Go = Callable[[str], None]

WAITS = "wait_for('go')\ndist.destroy_process_group()\n"
#: Of user nobody: tests that run as root can be somebody else.
NOBODY = 65534


def await_metrics(
    port: int, is_it: Callable[[str], object] = lambda text: "ops_total" in text
) -> str:
    def read() -> str | None:
        text = get_numbers(f"http://127.0.0.1:{port}")
        return text if is_it(text) else None

    return str(await_that(read, "the numbers do not come"))


def test_a_live_job_of_four_ranks_can_be_scraped(
    start_job: StartJob, free_port: int, go: Go
) -> None:
    job = start_job(WAITS, "--metrics-port", str(free_port), ranks=4)
    text = await_metrics(
        free_port, lambda text: value_of(text, "distdbg_ops_total", kind="all_reduce") == 80
    )
    run = job.run_folder.name
    labels = [labels for found in samples(text).values() for labels, _ in found]
    assert all(one["run"] == run for one in labels)
    assert {one["rank"] for one in labels if "rank" in one} == {"0", "1", "2", "3"}
    assert value_of(text, "distdbg_ops_total", kind="all_reduce", dtype="float32") == 80
    assert value_of(text, "distdbg_rank_up") == 4
    assert value_of(text, "distdbg_world_size") == 4
    assert value_of(text, "distdbg_op_duration_seconds_count", kind="all_reduce") == 80
    assert value_of(text, "distdbg_rank_seq", rank="3", group="world") == 20
    assert value_of(text, "distdbg_restarts_total") == 0
    go("go")
    done = job.wait()
    assert done.code == 0
    assert f"metrics: http://127.0.0.1:{free_port}/metrics" in done.err
    with socket.create_server(("127.0.0.1", free_port)):
        pass  # it is free at once


@pytest.mark.slow
def test_a_scraper_gets_the_format_that_it_asks_for(
    start_job: StartJob, free_port: int, go: Go
) -> None:
    start_job(WAITS, "--metrics-port", str(free_port), ranks=1)
    await_metrics(free_port)
    url = f"http://127.0.0.1:{free_port}/metrics"
    open_metrics = get(url, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert open_metrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")
    zipped = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(zipped, timeout=30) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert b"distdbg_rank_up" in gzip.decompress(answer.read())
    protobuf = (
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
    )
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Accept": protobuf}), timeout=30
    ) as answer:
        assert answer.headers["Content-Type"].startswith("application/vnd.google.protobuf")
        assert b"distdbg_rank_up" in answer.read()


@pytest.mark.skipif(os.getuid() != 0, reason="this user cannot be another one, only root can")
@pytest.mark.slow
def test_another_user_of_the_host_is_told_what_to_do(
    start_job: StartJob, free_port: int, go: Go
) -> None:
    start_job(WAITS, "--metrics-port", str(free_port), ranks=1)
    await_metrics(free_port)
    os.seteuid(NOBODY)  # the kernel notes it of the sockets that are made now
    try:
        answer = get(f"http://127.0.0.1:{free_port}/metrics")
    finally:
        os.seteuid(0)
    assert answer.status == 401
    assert "DISTDBG_METRICS_USERS" in answer.text
    assert answer.text.count("\n") == 1


@pytest.mark.slow
def test_a_token_lets_in_whoever_has_it(
    start_job: StartJob, free_port: int, go: Go, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a secret\n")
    token.chmod(0o600)
    address = f"0.0.0.0:{free_port}"
    start_job(WAITS, "--metrics-address", address, ranks=1, DISTDBG_METRICS_TOKEN_FILE=str(token))
    own = socket.gethostbyname(socket.gethostname())
    url = f"http://{own}:{free_port}/metrics"

    def right() -> Answer | None:
        answer = get(url, Authorization="Bearer a secret")
        return answer if "ops_total" in answer.text else None

    assert await_that(right, "the token does not let in").status == 200
    wrong = get(url, Authorization="Bearer another secret")
    assert (wrong.status, wrong.headers["WWW-Authenticate"]) == (401, 'Bearer realm="distdbg"')


@pytest.mark.slow
def test_a_wait_that_goes_on_is_counted_while_it_lasts_and_once(
    start_job: StartJob, free_port: int, go: Go
) -> None:
    program = "if rank == 1:\n    wait_for('late')\ndist.all_reduce(x)\n" + WAITS
    start_job(program, "--metrics-port", str(free_port))

    def waited(text: str) -> float:
        name = "distdbg_rank_wait_seconds_total"
        return value_of(text, name, rank="0", cause="late_peer") or 0.0

    def still(text: str) -> float:
        return value_of(text, "distdbg_rank_since_progress_seconds", rank="0") or 0.0

    first = await_metrics(free_port, lambda text: waited(text) > 0.5)
    then = await_metrics(free_port, lambda text: still(text) > still(first) + 1)
    # Rank 0 does nothing else: a second in each.
    longer = still(then) - still(first)
    assert waited(then) - waited(first) == pytest.approx(longer, rel=0.5)
    go("late")
    over = await_metrics(
        free_port, lambda text: value_of(text, "distdbg_ops_total", kind="all_reduce") == 42
    )
    waits = value_of(over, "distdbg_op_late_arrival_seconds_sum", kind="all_reduce") or 0.0
    by_rank = value_of(over, "distdbg_rank_wait_seconds_total", cause="late_peer") or 0.0
    assert waited(over) >= waited(then)
    # Of the ranks together it is what their ops that have ended took: the counted ones are not in it twice.
    assert by_rank == pytest.approx(waits, abs=waited(then) / 2)


@pytest.mark.slow
def test_a_killed_rank_is_dead_in_the_numbers(start_job: StartJob, free_port: int, go: Go) -> None:
    program = "if rank == 1:\n    os.kill(os.getpid(), 9)\nwait_for('go')\n"
    # Rank 1 fails; the launcher ends the other one, which does not hear of SIGTERM.
    program = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + program
    start_job(program, "--metrics-port", str(free_port), ranks=2)
    text = await_metrics(
        free_port,
        # What it has done counts all the same.
        lambda text: (
            value_of(text, "distdbg_dead_ranks") == 1
            and value_of(text, "distdbg_ops_total", kind="all_reduce") == 40
        ),
    )
    assert value_of(text, "distdbg_rank_up", rank="1") == 0
    assert value_of(text, "distdbg_ranks", state="dead") == 1


@pytest.mark.slow
def test_restarts_do_not_take_anything_back(start_job: StartJob, free_port: int, go: Go) -> None:
    program = (
        "restarts = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "if restarts == 0 and rank == 1:\n    wait_for('fail')\n    sys.exit(3)\n"
        "wait_for('go')\n"
    )
    job = start_job(program, "--metrics-port", str(free_port), "--max-restarts", "1")
    await_metrics(
        free_port, lambda text: value_of(text, "distdbg_ops_total", kind="all_reduce") == 40
    )
    go("fail")
    text = await_metrics(
        free_port, lambda text: value_of(text, "distdbg_ops_total", kind="all_reduce") == 80
    )
    assert value_of(text, "distdbg_restarts_total") == 1
    assert value_of(text, "distdbg_op_duration_seconds_count", kind="all_reduce") == 80
    assert value_of(text, "distdbg_rank_up") == 2
    go("go")
    assert job.wait().code == 0


@pytest.mark.slow
def test_an_agent_that_is_killed_serves_again_at_the_same_port(
    start_job: StartJob, free_port: int, go: Go
) -> None:
    job = start_job(WAITS, "--metrics-port", str(free_port))
    await_metrics(free_port)
    [agent] = [pid for pid, line in job.processes().items() if "distdbg.agent" in line]
    os.kill(agent, signal.SIGKILL)
    await_that(
        lambda: [
            pid for pid, line in job.processes().items() if "distdbg.agent" in line and pid != agent
        ],
        "no agent comes",
    )
    text = await_metrics(
        free_port, lambda text: value_of(text, "distdbg_ops_total", kind="all_reduce") == 40
    )
    assert value_of(text, "distdbg_rank_up") == 2
    go("go")
    assert job.wait().code == 0


@pytest.mark.slow
def test_a_finding_of_the_check_is_counted(start_job: StartJob, free_port: int, go: Go) -> None:
    program = (
        "try:\n"
        "    dist.all_reduce(np.ones(3 + rank, dtype=np.float32))\n"
        "except dist.MismatchError:\n"
        "    pass\n" + WAITS
    )
    start_job(program, "--metrics-port", str(free_port))
    text = await_metrics(
        free_port,
        lambda text: value_of(text, "distdbg_check_failures_total", check="mismatch") == 2,
    )
    assert value_of(text, "distdbg_op_failures_total", kind="all_reduce") == 2
