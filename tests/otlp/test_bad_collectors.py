"""A collector that is slow, dead, or dead and back again: the job does not notice, and nothing is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.otlp.collector import Taken, over_http, plain
from tests.otlp.conftest import variables
from tests.support.jobs import Done, RunningJob
from tests.support.ports import free_port

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
        assert run_job(SHORT, environ, nproc=2).code == 0
        assert spans_by_outcome(taken)["sent"] == len(taken.spans()) == 3 * 200


#: Two seconds for the end, and ten minutes for one try: a job that waited for it would not end in time.
PATIENT = {"DISTDBG_EXPORT_END_S": "2", "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_dead_collector_does_not_hold_up_the_end_of_the_job(
    protocol: str, run_job: Callable[..., Done]
) -> None:
    environ = variables(free_port(), **PATIENT, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    done = run_job(SHORT, environ, nproc=1)
    assert done.code == 0, done.err


def test_a_collector_that_answers_nobody_holds_up_neither_the_ranks_nor_the_end(
    run_job: Callable[..., Done],
) -> None:
    with over_http() as (taken, port):
        taken.delay_s = 600.0
        done = run_job(SHORT, variables(port, **PATIENT), nproc=2)
        assert done.code == 0, done.err
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
            job.process.wait(60)
            go.unlink()

    environ = variables(
        port,
        OTEL_BSP_MAX_QUEUE_SIZE="64",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="32",
        OTEL_EXPORTER_OTLP_TIMEOUT="3",  # an exporter that has no time to try again does not say why
    )
    assert run_job(text, environ, nproc=2, on_start=on_start).code == 0
    [failed] = [line for line in seen[0].splitlines() if "traces cannot be sent" in line]
    assert f"http://127.0.0.1:{port}/v1/traces does not take them; " in failed
    assert seen[0].count("takes traces again") == 1
