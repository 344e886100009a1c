"""Real tracers: the spans that ops, messages, calls beside the data plane and marks were called in."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.record.entries import ContextEntry, MarkEntry, OpEntry, Record
from distdbg.record.reader import RecordFile, read_record

Ranks = Callable[..., list[Any]]


def span_of(record: Record) -> dict[int, str]:
    """By the number of each op and mark, the id of the span that its thread was in."""
    spans: dict[int, str] = {}
    found = {}
    for event in record.events:
        if isinstance(event, ContextEntry):
            spans[event.thread] = event.span_id
        elif isinstance(event, OpEntry | MarkEntry):
            found[event.number] = spans.get(event.thread, "")
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def trace_all_kinds_of_ops() -> list[str]:
    """Ids of the spans that the events of this rank belong to, in order; "": none."""
    dist.init_process_group()
    dist.barrier()
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("job")

    def span(name: str) -> Any:
        return tracer.start_as_current_span(name)

    def id_now() -> str:
        context = trace.get_current_span().get_span_context()
        return f"{context.span_id:016x}" if context.is_valid else ""

    expected = [""]
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    with span("step"):
        dist.all_reduce(np.ones(2))
        expected.append(id_now())
        with span("exchange"):
            works = [dist.isend(np.ones(2), other), dist.irecv(np.ones(2), other)]
            expected += [id_now()] * 2
        dist.mark("sent")
        expected.append(id_now())
        for work in works:
            assert work is not None
            work.wait()
        if rank == 0:
            dist.send(np.ones(2), 1)
        else:
            dist.recv(np.ones(2), 0)
        expected.append(id_now())
    dist.monitored_barrier()
    expected.append("")
    with span("async"):
        work = dist.all_reduce(np.ones(2), async_op=True)
        expected.append(id_now())
    assert work is not None
    work.wait()

    def in_a_thread() -> None:
        dist.all_reduce(np.ones(2))  # contexts stay in their thread
        with span("thread"):
            dist.all_reduce(np.ones(2))
            expected.extend(["", id_now()])

    with span("main"):
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        dist.barrier()
        expected.append(id_now())
    dist.destroy_process_group()
    return expected


def test_each_op_is_recorded_in_the_span_that_it_was_called_in(
    folder: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_OTLP", "traces")
    expected = ranks(trace_all_kinds_of_ops, 2)
    for rank in (0, 1):
        record = read_record(folder / f"rank{rank:05}.ddr")
        assert list(span_of(record).values()) == expected[rank]
        contexts = [event for event in record.events if isinstance(event, ContextEntry)]
        assert all(event.is_sampled for event in contexts if event.span_id)
        with RecordFile(folder / f"rank{rank:05}.ddr") as file:
            notes = [note for note in file.notes(0, 100) if isinstance(note, ContextEntry)]
        assert notes == contexts


def test_without_the_variable_nothing_of_it_is_recorded(folder: Path, ranks: Ranks) -> None:
    ranks(trace_all_kinds_of_ops, 2)
    record = read_record(folder / "rank00000.ddr")
    assert not any(isinstance(event, ContextEntry) for event in record.events)


def run_untraced() -> list[str]:
    dist.init_process_group()
    dist.barrier()
    dist.mark("step")
    dist.destroy_process_group()
    return [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]


def test_a_rank_that_does_not_trace_loads_none_of_it(
    folder: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_OTLP", "all")
    assert ranks(run_untraced, 2) == [[], []]
    record = read_record(folder / "rank00000.ddr")
    assert [type(event) for event in record.events] == [OpEntry, MarkEntry]


def trace_with_an_api_that_breaks() -> bool:
    dist.init_process_group()
    from opentelemetry import context, trace

    assert trace
    errors: list[BaseException] = [RuntimeError("odd"), KeyboardInterrupt()]

    def fail() -> None:
        raise errors.pop()

    context.get_current = fail  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):  # the user's, just before the op
        dist.all_reduce(np.ones(2))
    for _ in range(3):
        dist.all_reduce(np.ones(2))
    dist.destroy_process_group()
    return not errors


def test_an_api_that_raises_does_no_harm_to_the_ops(
    folder: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_OTLP", "all")
    assert ranks(trace_with_an_api_that_breaks, 2) == [True, True]
    record = read_record(folder / "rank00001.ddr")
    assert [(op.seq, op.status_label) for op in record.ops] == [(1, "ok"), (2, "ok"), (3, "ok")]
