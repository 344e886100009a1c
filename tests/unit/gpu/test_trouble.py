"""Ops on GPU arrays that go wrong: errors on all ranks, and nothing left open. The GPU is a stand-in."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.clock import FREE_CLOCK
from distdbg.errors import (
    CollectiveError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
    UsageError,
)
from distdbg.ops.call import Call, Kind
from distdbg.record.reader import read_record
from distdbg.runtime.backends.gpu import driver, held_copies
from tests.unit.gpu.moving import look_until_nothing_is_held
from tests.unit.gpu.stand_in import Machine


def sum_of(machine: Machine, *values: float) -> list[float]:
    x = machine.array(values)
    dist.all_reduce(x)
    found: list[float] = x.host.tolist()
    return found


def wait(work: dist.Work | None) -> None:
    if work is not None:
        work.wait()


def test_a_difference_is_told_before_memory_is_touched_and_the_group_goes_on(
    machine: Machine,
) -> None:
    def program() -> list[float]:
        rank = dist.get_rank()
        for dtype, count in ((np.float32, 4 + rank), ([np.int32, np.float32][rank], 4)):
            with pytest.raises(MismatchError) as differs:
                dist.all_reduce(machine.array(np.ones(count), dtype))
            assert "all_reduce #" in differs.value.what
        with pytest.raises(MismatchError, match="all_to_all #3 ") as differs:
            dist.all_to_all_single(
                machine.array(np.zeros(3)), machine.array(np.zeros(3)), [1, 2], [1, 2]
            )
        assert "rank 1 sends 1 element to rank 0, which expects 2" in str(differs.value)
        assert "test_trouble.py" in str(differs.value)
        assert "kernel" not in machine.names(rank)
        assert "copy" not in machine.names(rank)
        return sum_of(machine, 1, 2)

    assert dist.run_threads(program, 2, timeout_s=240) == [[2.0, 4.0]] * 2


@pytest.mark.parametrize("cannot", ["export", "open"])
def test_one_rank_that_cannot_is_enough_for_all_to_go_through_the_host(
    machine: Machine, cannot: str
) -> None:
    machine.cannot.add((1, cannot))

    def program() -> list[float]:
        blocks = machine.array(np.zeros(3))
        dist.all_to_all_single(  # of other sizes on each rank
            blocks[: 1 + dist.get_rank()],
            machine.array([1, 2, 3])[: 3 if dist.get_rank() else 0],
            [0, 1 + dist.get_rank()],
            [dist.get_rank(), 2 * dist.get_rank()],
        )
        assert blocks.host.tolist() == ([2, 3, 0] if dist.get_rank() else [1, 0, 0])
        return sum_of(machine, 1, 2) + sum_of(machine, 3)

    assert dist.run_threads(program, 2, timeout_s=240) == [[2.0, 4.0, 6.0]] * 2
    assert "kernel" not in machine.names(0)


def test_a_rank_that_leaves_ends_the_ops_of_the_others(machine: Machine) -> None:
    class Leaving(Exception):
        """What the program itself raises."""

    def program() -> None:
        sum_of(machine, 1)
        if dist.get_rank() == 1:
            raise Leaving
        with pytest.raises(DistError) as ended:
            sum_of(machine, 1)
        assert "rank 1" in ended.value.what
        # The group is one: neither does it do anything on the host any more.
        with pytest.raises(CollectiveError):
            dist.all_reduce(np.ones(1))
        raise ended.value

    with pytest.raises(Leaving):
        dist.run_threads(program, 3, timeout_s=240)


class Clock:
    """Of a rank's meetings: much later as soon as its host has waited for a GPU that hangs."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def now_ns(self) -> int:
        has_waited = dist.get_rank() in self._machine.have_waited
        return FREE_CLOCK.now_ns() + has_waited * 10**15


@pytest.mark.parametrize("way", ["hangs", "fails"])
def test_a_gpu_that_hangs_or_fails_is_told_on_all_ranks(machine: Machine, way: str) -> None:
    def program() -> str:
        sum_of(machine, 1)
        if dist.get_rank() == 0:
            engine: Any = dist.group.WORLD.engine
            while not hasattr(engine, "on_gpu"):
                engine = engine.inner
            engine.on_gpu._engine.inner._control.clock = Clock(machine)
            getattr(machine, way).add(0)
        work = dist.all_reduce(machine.array([1.0]), async_op=True)
        assert work is not None
        try:
            work.wait()
        except DistError as error:
            return f"{type(error).__name__} {error.what}"
        return "nothing"

    first, second = dist.run_threads(program, 2, timeout_s=240)
    if way == "hangs":
        assert first.startswith("OpTimeout all_reduce #2")
        assert first.endswith("the GPU is not done")
    else:
        assert first.startswith("DistBackendError all_reduce")
        assert "failed on the GPU: CudaError: 700" in first
    assert "all_reduce #2" in second
    assert "rank 0" in second


def test_what_an_op_over_ipc_has_is_held_until_the_gpu_is_done(machine: Machine) -> None:
    def program() -> None:
        sum_of(machine, 1)
        if dist.get_rank() == 0:
            own: Any = dist.group.WORLD.engine  # type: ignore[union-attr]  # there is one
            own.on_gpu._engine.inner._control.clock = Clock(machine)
            machine.hangs.add(0)
        x = machine.array([1.0, 0.0, 2.0, 0.0])[::2]
        with pytest.raises(DistError):
            dist.all_gather_into_tensor(machine.array(np.zeros(4)), x)
        if dist.get_rank() == 0:
            own.on_gpu.close()
            assert machine.left_open() >= 2  # the other rank's array and event
            assert any(
                buffer.is_stand_in for held in held_copies._held[:1] for buffer in held.memory[0]
            )
            machine.hangs.clear()
            look_until_nothing_is_held()

    dist.run_threads(program, 2, timeout_s=240)
    assert machine.left_open() == 0


def test_who_does_not_come_to_the_first_op_is_named(machine: Machine) -> None:
    reported: list[OpTimeout] = []

    def program() -> None:
        group: Any = dist.group.WORLD
        if dist.get_rank() == 1:
            dist.recv(np.zeros(1), 0)
            return
        group.set_timeout(timedelta(seconds=0.5))
        with pytest.raises(OpTimeout) as late:
            sum_of(machine, 1)
        reported.append(late.value)
        raise late.value

    with pytest.raises(DistError):  # of either rank
        dist.run_threads(program, 2, timeout_s=240)
    assert re.match(r"all_reduce #1 on group 'world' waited .* for rank 1 of 0-1", reported[0].what)
    assert reported[0].missing == [1]


def test_arrays_of_an_op_are_all_on_the_gpu_or_none(machine: Machine) -> None:
    def program() -> None:
        with pytest.raises(UsageError, match="some on a GPU"):
            dist.all_gather_into_tensor(np.zeros(2, np.float32), machine.array([1.0]))

    dist.run_threads(program, 2, timeout_s=240)


def one_is_killed() -> list[object]:
    # A GPU of its own for each process: nothing can be opened.
    machine = Machine()
    machine.cannot |= {(0, "open"), (1, "open")}
    driver._driver = machine.driver()
    dist.init_process_group()
    found = sum_of(machine, 1, 2)
    if dist.get_rank() == 1:
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        sum_of(machine, 1, 2)
    return [found, lost.value.peer]


def test_a_rank_that_is_killed_is_told(ranks: Callable[..., list[Any]]) -> None:
    env = {"DISTDBG_GPU_IPC": "always"}
    result = ranks(one_is_killed, 2, timeout=240.0, env=env, expect_exit={1: -signal.SIGKILL})
    assert result[0] == [[2.0, 4.0], 1]


def test_the_record_has_one_op_for_each(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))

    def program() -> None:
        sum_of(machine, 1, 2)
        with pytest.raises(MismatchError):
            dist.broadcast(machine.array(np.ones(1 + dist.get_rank())), 0)
        work = dist.all_reduce(machine.array([1.0]), async_op=True)
        assert work is not None
        work.wait()
        dist.all_reduce(np.ones(1))  # on the host, which counts for itself

    dist.run_threads(program, 2, timeout_s=240)
    for rank in (0, 1):
        ops = read_record(tmp_path / f"rank{rank:05}.ddr").ops
        reported = [
            (op.name, op.seq, op.status_label, op.started_ns is not None)
            for op in ops
            if op.form is not None and op.form.device == "cuda:0"
        ]
        assert reported == [
            ("all_reduce", 1, "ok", True),
            ("broadcast", 2, "mismatch", False),
            ("all_reduce", 3, "ok", True),
        ]
        groups = {op.group.desc for op in ops if op.group is not None}
        assert groups == {"world", "world (gpu)"}


def test_the_record_says_how_long_the_device_took(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))
    machine.copy_ms = 0.003

    def program() -> None:
        sum_of(machine, 1, 2)
        work = dist.all_reduce(machine.array([1.0]), async_op=True)
        assert work is not None
        work.wait()

    dist.run_threads(program, 2, timeout_s=240)
    for rank in (0, 1):
        ops = read_record(tmp_path / f"rank{rank:05}.ddr").ops
        took = [
            op.ended_ns - op.started_ns
            for op in ops
            if op.name == "all_reduce" and op.ended_ns is not None and op.started_ns is not None
        ]
        assert took == [3000, 3000]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_arrays_on_the_host_on_one_rank_are_a_mismatch_and_the_group_goes_on(
    machine: Machine, first: bool, is_async: bool
) -> None:
    def program() -> str:
        if not first:
            sum_of(machine, 1.0)
        dist.all_reduce(np.ones(1))
        x: Any = np.ones(4, np.float32)
        with pytest.raises(MismatchError) as differs:  # noqa: PT012 - each side has a line of its own
            if dist.get_rank() == 1:
                wait(dist.all_reduce(x, async_op=is_async))
            else:
                wait(dist.all_reduce(machine.array(x), async_op=is_async))
        assert sum_of(machine, 1.0, 2.0) == [3.0, 6.0]
        assert np.array_equal(x, np.ones(4))
        return str(differs.value)

    for reported in dist.run_threads(program, 3, timeout_s=30):
        assert (
            "on group 'world' differs between ranks: on cuda on ranks 0,2, on cpu on rank 1"
            in reported
        )
        assert re.search(r"ranks 0,2 called all_reduce at \S*test_trouble.py:\d", reported)
        assert re.search(r"rank 1 called all_reduce at \S*test_trouble.py:\d", reported)
        assert "the group is still usable" in reported


@pytest.mark.parametrize("first", [True, False])
def test_after_such_a_mismatch_ops_have_the_same_number_on_all_ranks(
    machine: Machine, first: bool
) -> None:
    def program() -> int:
        if not first:
            sum_of(machine, 1.0)
        x: Any = np.ones(4, np.float32)
        for _ in range(2):
            with pytest.raises(MismatchError):
                dist.all_reduce(x if dist.get_rank() == 1 else machine.array(x))
        sum_of(machine, 1.0)
        assert dist.group.WORLD is not None
        own: Any = dist.group.WORLD.engine
        arrays = (machine.array(x),)
        call = Call(Kind.ALL_REDUCE, arrays, arrays)
        return int(own.on_gpu.engine_for(call).next_seq(call))

    assert dist.run_threads(program, 2, timeout_s=30) == [4 if first else 5] * 2


def test_sizes_that_go_different_ways_are_told_as_sizes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "on")

    def program() -> str:
        count = (15_000, 17_000)[dist.get_rank()]  # the first goes whole, through the host
        with pytest.raises(MismatchError) as differs:
            dist.all_reduce(machine.array(np.ones(count, np.float32)))
        dist.barrier()
        return str(differs.value)

    for reported in dist.run_threads(program, 2, timeout_s=30):
        assert "float32[15000] on rank 0, float32[17000] on cuda on rank 1" in reported
        assert "arrays on a GPU on all ranks" not in reported


def test_at_info_they_are_a_mismatch_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_DEBUG", "info")

    def program() -> str:
        sum_of(machine, 1.0)
        x: Any = np.ones(4, np.float32)
        with pytest.raises(MismatchError) as differs:
            dist.all_reduce(x if dist.get_rank() == 1 else machine.array(x))
        return str(differs.value)

    for reported in dist.run_threads(program, 3, timeout_s=30):
        assert "on cuda on ranks 0,2, on cpu on rank 1" in reported


@pytest.mark.slow
def test_a_rank_that_is_late_for_an_op_on_the_host_is_not_a_mismatch(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))

    def program() -> list[float]:
        sum_of(machine, 1.0)
        if dist.get_rank() == 1:
            time.sleep(0.7)  # longer than the other needs to look for a difference
            dist.broadcast(np.ones(1), 0)
            time.sleep(0.7)  # and now for the op on a GPU
        else:
            dist.broadcast(np.ones(1), 0)
        return sum_of(machine, 1.0)

    assert dist.run_threads(program, 2, timeout_s=240) == [[2.0], [2.0]]
