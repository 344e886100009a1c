"""Four ranks, their agent and a real collector: what arrives, decoded by OpenTelemetry's definitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.otlp.collector import Taken, over_grpc, over_http, plain
from tests.otlp.conftest import variables
from tests.support.jobs import Done

pytestmark = pytest.mark.ranks

TRAIN = """
with dist.span("train"):
    for step in range(5):
        dist.all_reduce(x)
        dist.mark("step", step)
if rank == 0:
    dist.send(x, 1, tag=3)
if rank == 1:
    dist.recv(x, None, tag=3)
dist.barrier()
dist.destroy_process_group()
"""
ERROR = 2  # Status.StatusCode.STATUS_CODE_ERROR
PRODUCER, CONSUMER = 4, 5


def ops(taken: Taken, **wanted: Any) -> list[tuple[dict[str, Any], Any]]:
    """Spans with these attributes: their attributes, and they."""
    found = [(plain(span.attributes), span) for _, span in taken.spans()]
    names = {name: "distdbg." + name.replace("__", ".") for name in wanted}
    return [
        (values, span)
        for values, span in found
        if all(values.get(names[name]) == value for name, value in wanted.items())
    ]


@pytest.mark.parametrize(
    "protocol", ["http/protobuf", pytest.param("grpc", marks=pytest.mark.slow)]
)
def test_each_collective_is_one_trace_with_all_ranks_over(
    protocol: str, run_job: Callable[..., Done]
) -> None:
    with (over_grpc if protocol == "grpc" else over_http)() as (taken, port):
        environ = variables(
            port,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_EXPORTER_OTLP_HEADERS="x-team=seven",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="trainer",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        )
        done = run_job(TRAIN, environ)
    assert done.code == 0, done.err
    for kind, seqs in (("all_reduce", range(1, 6)), ("barrier", [6])):
        for seq in seqs:
            spans = ops(taken, seq=seq, op__kind=kind)
            (root,) = (span for values, span in spans if values["distdbg.role"] == "root")
            assert root.name == f"{kind} #{seq} on world"
            children = [(v, s) for v, s in spans if v["distdbg.role"] == "rank"]
            assert sorted(values["distdbg.rank"] for values, _ in children) == [0, 1, 2, 3]
            assert {span.parent_span_id for _, span in children} == {root.span_id}
            assert {span.trace_id for _, span in spans} == {root.trace_id}
            assert all(s.start_time_unix_nano <= s.end_time_unix_nano for _, s in spans)
            assert all("code.line.number" in values for values, _ in spans)
    ((_, send),) = ops(taken, op__kind="send")
    ((values, recv),) = ops(taken, op__kind="recv")
    assert (send.kind, recv.kind) == (PRODUCER, CONSUMER)
    assert (recv.trace_id, recv.parent_span_id) == (send.trace_id, send.span_id)
    assert [(link.trace_id, link.span_id) for link in recv.links] == [(send.trace_id, send.span_id)]
    assert (values["distdbg.peer"], values["distdbg.tag"]) == (0, 3)
    blocks = [span for _, span in taken.spans() if span.name == "train"]
    marks = [span for _, span in taken.spans() if span.name == "step"]
    assert (len(blocks), len(marks)) == (4, 20)
    assert {span.parent_span_id for span in marks} == {span.span_id for span in blocks}
    resource, _ = taken.spans()[0]
    assert resource["service.name"] == "trainer"
    assert resource["deployment.environment.name"] == "test"
    assert resource["distdbg.world_size"] == 4
    headers = {name.lower(): value for name, value in taken.headers[0].items()}
    assert headers["x-team"] == "seven"
    bodies = {log.body.string_value for _, log in taken.logs()}
    assert {f"rank {rank} exited with code 0" for rank in range(4)} <= bodies
    metrics = taken.metrics()
    points = metrics["distdbg.ops"].sum.data_points
    counts = {plain(p.attributes)["kind"]: p.as_double or p.as_int for p in points}
    assert (counts["all_reduce"], counts["barrier"]) == (20, 4)
    (histogram,) = (
        p
        for p in metrics["distdbg.op.duration"].histogram.data_points
        if plain(p.attributes)["kind"] == "all_reduce"
    )
    assert histogram.count == sum(histogram.bucket_counts) == 20
    assert metrics["distdbg.op.duration"].unit == "s"


@pytest.mark.slow
def test_what_is_slow_and_what_fails_is_kept_of_all_ranks_whatever_the_sampler_says(
    run_job: Callable[..., Done],
) -> None:
    text = """
for step in range(20):
    if step == 10 and rank == 2:
        time.sleep(1.0)  # what makes the others wait
    dist.all_reduce(x)
dist.all_reduce(np.ones(4 + rank // 3))
"""
    with over_http() as (taken, port):
        environ = variables(port, OTEL_TRACES_SAMPLER="always_off", DISTDBG_OTLP_SLOW_S="0.9")
        done = run_job(text, environ)
    assert done.code != 0
    slow = [one for one in ops(taken, kept="slow") if one[0]["distdbg.seq"] == 11]
    assert len(slow) == 5
    spans = ops(taken, seq=21, op__kind="all_reduce")
    assert len(spans) == 5
    assert {values["error.type"] for values, _ in spans} == {"MismatchError"}
    assert {span.status.code for _, span in spans} == {ERROR}
    assert "differs between ranks" in spans[0][1].status.message
    traces = {span.trace_id for _, span in taken.spans()}
    assert traces == {slow[0][1].trace_id, spans[0][1].trace_id}
    ((_, found),) = ops(taken, finding="mismatch")
    assert found.trace_id == spans[0][1].trace_id
    logs = [log for _, log in taken.logs() if log.event_name == "distdbg.finding"]
    assert found.span_id in {log.span_id for log in logs}
    errors = [log for _, log in taken.logs() if log.event_name == "distdbg.rank.error"]
    assert {log.trace_id for log in errors} == {found.trace_id}


@pytest.mark.slow
def test_the_program_s_own_spans_have_the_ops_as_children(run_job: Callable[..., Done]) -> None:
    text = """
from opentelemetry.sdk.trace import TracerProvider
tracer = TracerProvider().get_tracer("train")
dist.all_reduce(x)
with tracer.start_as_current_span("step") as span:
    dist.all_reduce(x)
    if rank == 0:
        context = span.get_span_context()
        print(f"own {context.trace_id:032x} {context.span_id:016x}", flush=True)
dist.all_reduce(x)
"""
    with over_http() as (taken, port):
        done = run_job(text, variables(port), nproc=2)
    assert done.code == 0, done.err
    found = re.search(r"own (\w{32}) (\w{16})", done.out)
    assert found is not None
    trace_id, span_id = (bytes.fromhex(word) for word in found.groups())
    callers = ops(taken, role="caller")
    assert {values["distdbg.seq"] for values, _ in callers} == {2}
    assert len(callers) == 2  # each rank in a trace of its own
    ((_, own),) = ((v, s) for v, s in callers if v["distdbg.rank"] == 0)
    assert (own.trace_id, own.parent_span_id) == (trace_id, span_id)
    ((_, in_op),) = ops(taken, role="rank", seq=2, rank=0)
    assert [(link.trace_id, link.span_id) for link in own.links] == [
        (in_op.trace_id, in_op.span_id)
    ]
    assert [link.span_id for link in in_op.links] == [own.span_id]


@pytest.mark.slow
def test_a_rank_that_is_killed_and_a_start_anew_are_told_and_have_traces_of_their_own(
    run_job: Callable[..., Done],
) -> None:
    text = """
dist.all_reduce(x)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
"""
    with over_http() as (taken, port):
        assert run_job(text, variables(port), "--max-restarts=1", nproc=2).code == 0
    traces = {span.trace_id for _, span in ops(taken, seq=1)}
    starts = {resource["distdbg.start"] for resource, _ in taken.spans()}
    assert len(traces) == 2
    assert starts == {0, 1}
    bodies = [log.body.string_value for _, log in taken.logs()]
    assert "rank 1 was killed by SIGKILL" in bodies
    assert "the ranks were started again: start 1" in bodies
