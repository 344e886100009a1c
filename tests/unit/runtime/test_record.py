"""What a record says of a program that is known: each op, mark, span and finding, and the sums."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.record.entries import (
    FindingEntry,
    MarkEntry,
    OpEntry,
    Record,
    SpanBegin,
    SpanEnd,
    label_of_kind,
)
from distdbg.record.format import Exit
from distdbg.record.rank_words import Clock, where_is
from distdbg.record.reader import read_record
from distdbg.record.text import render


@pytest.fixture
def recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], object], int], list[Record]]:
    """Run a function on some ranks, and return their records."""
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))

    def run(function: Callable[[], object], size: int) -> list[Record]:
        dist.run_threads(function, size)
        return [read_record(tmp_path / f"rank{rank:05}.ddr") for rank in range(size)]

    return run


Recorded = Callable[[Callable[[], object], int], list[Record]]


def line() -> int:
    """Of the caller."""
    return sys._getframe(1).f_lineno


def findings(record: Record) -> list[dict[str, Any]]:
    return [json.loads(e.text or "") for e in record.events if isinstance(e, FindingEntry)]


def ones(count: int) -> Any:
    return np.ones(count, np.float32)


def test_each_op_is_there_with_what_it_was_called_with(recorded: Recorded) -> None:
    lines = {}

    def program() -> None:
        rank = dist.get_rank()
        lines["all_reduce"] = line() + 1
        dist.all_reduce(ones(6).reshape(2, 3), dist.ReduceOp.MAX)
        dist.broadcast(ones(4), 1, async_op=True).wait()
        splits = [1, 2] if rank == 0 else [3, 4]
        dist.all_to_all_single(
            ones(1 + 3) if rank == 0 else ones(2 + 4), ones(sum(splits)),
            output_split_sizes=[1, 3] if rank == 0 else [2, 4], input_split_sizes=splits,
        )  # fmt: skip
        if rank == 0:
            dist.send(ones(5), 1, tag=9)
        else:
            dist.recv(ones(5), tag=9)

    first, second = recorded(program, 2)
    reduction, cast, exchange, send = first.ops
    assert (reduction.name, reduction.seq, reduction.kind_label) == ("all_reduce", 1, "all_reduce")
    assert reduction.form is not None
    assert (reduction.form.op, reduction.form.dtype, reduction.form.device) == (
        "MAX", "float32", "cpu",
    )  # fmt: skip
    assert reduction.form.inputs.items == ((2, 3),)
    assert reduction.form.nbytes == 24
    assert reduction.site is not None
    assert (reduction.site.file, reduction.site.line) == (__file__, lines["all_reduce"])
    assert reduction.status_label == "ok"
    assert reduction.started_ns is not None
    assert reduction.ended_ns is not None
    assert reduction.issued_ns <= reduction.started_ns <= reduction.ended_ns
    assert cast.is_async
    assert cast.form is not None
    assert cast.form.root == 1
    assert exchange.form is not None
    assert exchange.form.input_splits.items == (1, 2)
    assert exchange.form.output_splits.items == (1, 3)
    assert (send.name, send.peer, send.tag, send.is_message) == ("send", 1, 9, True)
    recv = second.ops[-1]
    assert (recv.name, recv.peer, recv.source, recv.tag) == ("recv", None, 0, 9)
    assert {op.thread for op in first.ops} != {op.thread for op in second.ops}
    assert [op.fingerprint for op in first.ops[:2]] == [op.fingerprint for op in second.ops[:2]]


def test_the_parts_of_a_coalesced_block_say_which_they_are(recorded: Recorded) -> None:
    def program() -> None:
        with dist._coalescing_manager():
            dist.all_reduce(ones(2))
            dist.all_reduce(ones(3))

    for record in recorded(program, 2):
        assert [op.form.part for op in record.ops if op.form] == [(0, 2), (1, 2)]


def test_counters_and_histograms_are_those_of_the_program(recorded: Recorded) -> None:
    def program() -> None:
        for _ in range(5):
            dist.all_reduce(ones(256))
        for count in (1, 2):
            dist.all_reduce(ones(count))
        with pytest.raises(dist.MismatchError):
            dist.all_reduce(ones(3 + dist.get_rank()))
        dist.barrier()

    for rank, record in enumerate(recorded(program, 2)):
        [reductions, barriers] = [c for c in record.counters if c.ended]
        assert (reductions.ended, reductions.failed) == (8, 1)
        assert reductions.nbytes == 5 * 1024 + 4 + 8
        sizes = {index: n for index, n in enumerate(reductions.size_buckets) if n}
        assert sizes == {10: 5, 2: 1, 3: 1, (3 if rank == 0 else 4): 1} | (
            {3: 2} if rank == 0 else {}
        )
        ops = [op for op in record.ops if op.kind == reductions.kind]
        took = [op.ended_ns - op.issued_ns for op in ops if op.ended_ns is not None]
        assert (reductions.duration_ns, reductions.longest_ns) == (sum(took), max(took))
        durations = {ns.bit_length() - 1 for ns in took}
        assert {i for i, n in enumerate(reductions.duration_buckets) if n} == durations
        assert sum(reductions.duration_buckets) == sum(reductions.wait_buckets) == 8
        assert barriers.ended == 1
        [group] = record.groups
        assert record.progress[group.number].issued_seq == 9
        assert record.progress[group.number].ended_seq == 9


def test_ops_of_one_kind_are_counted_by_dtype_and_a_barrier_has_none(recorded: Recorded) -> None:
    def program() -> None:
        for dtype in (np.float32, np.int64, np.float32):
            dist.all_reduce(np.ones(4, dtype))
        other = 1 - dist.get_rank()
        works = [dist.isend(np.ones(2, np.uint8), other), dist.irecv(np.ones(2, np.uint8), other)]
        for work in works:
            assert work is not None
            work.wait()
        dist.barrier()

    for record in recorded(program, 2):
        found = [(label_of_kind(c.kind), c.dtype, c.ended, c.nbytes) for c in record.counters]
        assert sorted(found) == [
            ("all_reduce", "float32", 2, 32),
            ("all_reduce", "int64", 1, 32),
            ("barrier", "", 1, 0),
            ("recv", "uint8", 1, 2),
            ("send", "uint8", 1, 2),
        ]


def test_marks_and_spans_stand_between_the_ops_with_the_lines_of_the_program(
    recorded: Recorded,
) -> None:
    lines = {}

    def program() -> None:
        dist.mark("step", 12)
        dist.mark("begun")
        lines["span"] = line() + 1
        with dist.span("forward"):
            dist.barrier()

    for record in recorded(program, 2):
        step, begun, begin, barrier, end = record.events
        assert isinstance(step, MarkEntry)
        assert (step.name, step.value) == ("step", 12.0)
        assert isinstance(begun, MarkEntry)
        assert (begun.name, begun.value) == ("begun", None)
        assert isinstance(begin, SpanBegin)
        assert begin.site is not None
        assert (begin.name, begin.site.file, begin.site.line) == (
            "forward", __file__, lines["span"],
        )  # fmt: skip
        assert isinstance(barrier, OpEntry)
        assert isinstance(end, SpanEnd)
        assert (end.name, end.begin) == ("forward", begin.number)
        assert end.site is not None
        assert end.site.file == __file__


def test_a_span_ends_with_an_exception_too(recorded: Recorded) -> None:
    def program() -> None:
        with pytest.raises(KeyError), dist.span("forward"):
            raise KeyError

    [record] = recorded(program, 1)
    assert [type(event) for event in record.events] == [SpanBegin, SpanEnd]


def test_marks_without_a_group_are_nothing() -> None:
    dist.mark("step", 1)
    with dist.span("forward"):
        pass


def test_making_a_group_is_an_op_beside_the_numbered_ones(recorded: Recorded) -> None:
    def program() -> None:
        dist.barrier()
        dist.new_group([0, 1])
        dist.barrier()

    for record in recorded(program, 3):
        made = record.ops[1]
        assert (made.name, made.kind_label, made.seq, made.is_aside) == (
            "new_group", "new_group", 1, True,
        )  # fmt: skip
        assert made.status_label == "ok"
        assert made.group is not None
        assert made.group.desc == "world"
        assert [op.seq for op in record.ops if not op.is_aside] == [1, 2]
        assert record.progress[1].issued_seq == record.progress[1].ended_seq == 2


def test_a_rank_that_waits_in_new_group_is_there(tmp_path: Path, recorded: Recorded) -> None:
    asked = threading.Event()
    places = []

    def program() -> None:
        if dist.get_rank() == 0:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and not any("new_group" in p for p in places):
                places.append(where_is(tmp_path, 1) or "")
                time.sleep(0.01)  # the other rank shows itself in its record only
            asked.set()
        dist.new_group()

    recorded(program, 2)
    assert asked.is_set()
    assert places[-1].startswith("in new_group #1 on group 'world' for ")


def test_groups_that_differ_are_a_finding(recorded: Recorded) -> None:
    def program() -> None:
        with pytest.raises(dist.MismatchError):
            dist.new_group([0, 1] if dist.get_rank() == 0 else [0, 1, 2])

    for record in recorded(program, 3):
        [op] = record.ops
        assert (op.name, op.status_label) == ("new_group", "mismatch")
        [found] = findings(record)
        assert found["type"] == "MismatchError"
        assert "new_group #1 differs between ranks" in found["what"]


def test_a_monitored_barrier_is_recorded_with_whom_it_missed(recorded: Recorded) -> None:
    came = threading.Event()

    def program() -> None:
        dist.monitored_barrier()
        if dist.get_rank() == 1:
            came.wait(120)
        with pytest.raises(dist.OpTimeout):
            dist.monitored_barrier(timeout=0.05)
        came.set()

    for record in recorded(program, 2):
        good, bad = record.ops
        assert (good.name, good.seq, good.is_aside) == ("monitored_barrier", 1, True)
        assert (good.status_label, bad.status_label) == ("ok", "timeout")
        assert bad.seq == 2
        [found] = findings(record)
        assert (found["type"], found["ranks"]) == ("OpTimeout", [1])
        assert json.loads(bad.error or "") == found
        assert record.progress[1].issued_seq == 0


def test_a_replica_that_diverged_is_a_finding(recorded: Recorded) -> None:
    def program() -> None:
        with pytest.raises(dist.DivergedError):
            dist.assert_same(ones(3) * (1 + dist.get_rank() // 2), what="weights")

    for record in recorded(program, 3):
        [found] = findings(record)
        assert (found["type"], found["ranks"]) == ("DivergedError", [2])
        assert found["what"].startswith("assert_same on group 'world': weights")


def test_a_suspicion_is_a_finding_and_no_failed_op(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_CHECK_ORDER", "1")

    def program() -> None:
        def loss() -> None:
            dist.all_reduce(ones(1))

        def accuracy() -> None:
            dist.all_reduce(ones(1))

        for call in (accuracy, loss) if dist.get_rank() == 1 else (loss, accuracy):
            call()

    for record in recorded(program, 3):
        assert [op.status_label for op in record.ops] == ["ok", "ok"]
        [found] = findings(record)
        assert (found["type"], found["ranks"], found["seq"]) == ("Suspicion", [1], 2)
        assert "look swapped" in found["what"]
        assert any("(test_a_suspicion" in line for line in found["details"])


def test_the_header_and_the_state_say_who_wrote_and_how_it_ended(recorded: Recorded) -> None:
    for rank, record in enumerate(recorded(dist.barrier, 2)):
        assert (record.header.rank, record.header.world_size) == (rank, 2)
        assert record.header.distdbg_version == dist.__version__
        assert record.state.exit is Exit.LEFT
        assert record.state.level == 2
        assert record.progress[1].closed_ns is not None


def test_where_a_group_was_destroyed_is_recorded(recorded: Recorded) -> None:
    def program() -> None:
        group = dist.new_group([0, 1])
        dist.barrier(group)
        dist.destroy_process_group(group)

    for record in recorded(program, 2):
        [frame] = [far.closed_at for far in record.progress.values() if far.closed_at is not None]
        assert Path(frame.file).name == "test_record.py"
        assert frame.line == program.__code__.co_firstlineno + 3
        lines = render(record, Clock(record.header, 0, ""), is_live=False, most_events=0)
        assert any(f", destroyed at test_record.py:{frame.line} (" in line for line in lines)


def test_an_editable_install_has_call_sites_of_the_program_too(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There the package's first folder is that of the extension, and its sources are in the second.
    monkeypatch.setattr(dist, "__path__", [str(tmp_path / "site-packages"), *dist.__path__])

    def program() -> None:
        dist.all_reduce(ones(1))

    [record] = recorded(program, 1)
    [op] = record.ops
    assert op.site is not None
    assert op.site.file == __file__
