"""A collector that is slow, dead, or dead and back again: the job does not notice, and nothing is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.testing.jobs import Done, RunningJob
from distdbg.testing.ports import free_port
from tests.otlp.collector import Taken, over_http, plain
from tests.otlp.conftest import variables

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SHORT = """
for step in range(200):
    dist.all_reduce(x)
"""


def spans_by_outcome(taken: Taken) -> Counter[str]:
    """What the last metrics that came say has become of spans."""
    if (spans := taken.metrics().get("distdbg.agent.spans")) is None:
        return Counter()
    points = spans.sum.data_points
    return Counter({plain(p.attributes)["outcome"]: p.as_double or p.as_int for p in points})


def test_the_last_metrics_count_the_spans_that_were_sent_before_them(
    run_job: Callable[..., Done],
) -> None:
    with over_http() as (taken, port):
        environ = variables(
            port, OTEL_BSP_SCHEDULE_DELAY="60000", OTEL_METRIC_EXPORT_INTERVAL="60000"
        )
        assert run_job(SHORT, environ).code == 0
        assert spans_by_outcome(taken)["sent"] == len(taken.spans()) == 5 * 200


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_dead_collector_costs_the_job_two_seconds_at_its_end_at_most(
    protocol: str, run_job: Callable[..., Done]
) -> None:
    environ = variables(free_port(), OTEL_EXPORTER_OTLP_TIMEOUT="10")
    text = SHORT + "dist.barrier()\nif rank == 0:\n    print(f'over {time.time()}', flush=True)\n"
    done = run_job(text, environ | {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
    assert done.code == 0, done.err
    over = float(done.out.split()[1])
    # Two, and what it takes on a busy host to end four ranks and to look for what they left.
    assert time.time() - over < 5.0


def test_a_collector_that_answers_nobody_holds_up_neither_the_ranks_nor_the_end(
    run_job: Callable[..., Done],
) -> None:
    with over_http() as (taken, port):
        taken.delay_s = 6.0
        done = run_job(SHORT, variables(port, OTEL_EXPORTER_OTLP_TIMEOUT="10"))
        assert done.code == 0, done.err
        assert done.seconds < 8.0
        assert taken.requests == []


def test_a_collector_that_comes_back_gets_what_is_new_and_hears_what_was_lost(
    run_job: Callable[..., Done], job_folder: Path
) -> None:
    go, port = job_folder / "go", free_port()
    text = f"""
while True:
    for _ in range(50):
        dist.all_reduce(x)
    go_on = np.array([os.path.exists({str(go)!r})])
    time.sleep(0.05)  # not too many
    dist.broadcast(go_on, 0)
    if go_on[0]:
        break
dist.barrier()
time.sleep(0.5)  # what was begun is sent
"""
    seen: list[str] = []

    def on_start(job: RunningJob) -> None:
        def log() -> str:
            return "".join(path.read_text() for path in job.run_folder.glob("agent-*.log"))

        job.until(lambda: "traces cannot be sent" in log(), "the agent says that it fails")
        with over_http(port) as (taken, _):
            taken.until(lambda: taken.spans(), "spans come")
            job.until(lambda: "takes traces again" in log(), "the agent says that it works")
            # While it runs: how much of the last moment still arrives depends on how busy the host is.
            taken.until(lambda: spans_by_outcome(taken)["sent"] > 0, "it is counted what was sent")
            assert spans_by_outcome(taken)["failed"] > 0
            seen.append(log())
            go.touch()
            job.process.wait(20)
            go.unlink()

    environ = variables(
        port,
        OTEL_BSP_MAX_QUEUE_SIZE="64",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="32",
        OTEL_EXPORTER_OTLP_TIMEOUT="3",  # an exporter that has no time to try again does not say why
    )
    assert run_job(text, environ, on_start=on_start).code == 0
    [failed] = [line for line in seen[0].splitlines() if "traces cannot be sent" in line]
    assert f"http://127.0.0.1:{port}/v1/traces does not take them; " in failed
    assert seen[0].count("takes traces again") == 1
