"""What ends that a call is known: whatever would have it go another way in Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from distdbg.log.log_levels import LogLevel
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.world import World, use
from tests.ranks.known_calls import (
    SIZE,
    hits,
    is_known,
    reduce_ones,
    run,
    send_around,
    warm_up,
    world,
)


def test_a_call_is_known_by_all_that_it_is_checked_for() -> None:
    def program(rank: int) -> None:
        warm_up()
        for array in (
            np.ones(3, np.float32),
            np.ones((2, 1), np.float32),
            np.ones(2, np.float64),
            np.ones(2, np.int32),
            np.ones(4, np.float32)[::2],
            np.ones((2, 2), np.float32).T,
            np.ones(2, np.float32).view(np.recarray),
        ):
            # A default binds this round's array; mypy infers no type for such a lambda.
            assert not is_known(lambda array=array: dist.all_reduce(array))  # type: ignore[misc]
        x = np.ones(2, np.float32)
        for more in (
            {"op": dist.ReduceOp.MIN},
            {"op": dist.ReduceOp(dist.ReduceOp.SUM)},
            {"timeout": 60},
        ):
            assert not is_known(lambda more=more: dist.all_reduce(x, **more))  # type: ignore[misc]
        x.flags.writeable = False
        before = hits()
        for _ in range(2):
            with pytest.raises(UsageError, match="read-only"):
                dist.all_reduce(x)
        assert hits() == before
        assert is_known(reduce_ones)

    run(program)


def test_what_cannot_be_known_is_not_asked_again() -> None:
    def program(rank: int) -> None:
        warm_up()
        whole = np.ones(8, np.float32)
        for _ in range(4):  # the input overlaps the output, so a copy of it is sent
            assert not is_known(lambda: dist.all_gather_into_tensor(whole[1:5], whole[:2]))
        op = dist.make_premul_sum(2.0)
        for _ in range(4):
            x = np.ones(2, np.float32)
            assert not is_known(lambda: dist.all_reduce(x, op))  # noqa: B023
            assert x.tolist() == [2 * SIZE] * 2

    run(program)


def test_an_engine_around_the_groups_engine_sees_each_op() -> None:
    def program(rank: int) -> None:
        warm_up()
        inner = world().engine
        seen = []

        class Looking:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def run(self, call: Any) -> int:
                seen.append(call.kind.label)
                return inner.run(call)

        world().engine = Looking()
        for _ in range(3):
            reduce_ones()
        assert seen == ["all_reduce"] * 3
        world().engine = inner
        reduce_ones()
        assert is_known(reduce_ones)

    run(program)


def test_a_trace_shows_known_calls(caplog: pytest.LogCaptureFixture) -> None:
    both = threading.Barrier(SIZE)

    def program(rank: int) -> None:
        warm_up()
        both.wait()
        if rank == 0:
            caplog.set_level(LogLevel.TRACE, "distdbg.ops")
        both.wait()
        dist.set_debug_level(dist.DebugLevel.INFO)
        assert not is_known(reduce_ones)
        both.wait()
        if rank == 0:
            caplog.set_level(LogLevel.WARNING, "distdbg.ops")
        both.wait()
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        reduce_ones()
        assert is_known(reduce_ones)

    run(program)
    assert sum("all_reduce" in each.getMessage() for each in caplog.records) >= SIZE


def test_a_function_put_before_each_op_sees_known_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(SIZE)
    original = ProcessGroup.run
    seen = []

    def look(self: ProcessGroup, call: Any, async_op: bool = False) -> Any:
        seen.append(call.kind.label)
        return original(self, call, async_op)

    def program(rank: int) -> None:
        warm_up()
        both.wait()
        if rank == 0:
            monkeypatch.setattr(ProcessGroup, "run", look)
        both.wait()
        for _ in range(3):
            reduce_ones()
        both.wait()
        if rank == 0:
            monkeypatch.undo()
        both.wait()
        assert is_known(reduce_ones)
        monkeypatch.setattr(world(), "run", lambda *given: look(world(), *given))
        for _ in range(2):
            reduce_ones()

    run(program)
    assert seen == ["all_reduce"] * 10


def test_a_coalescing_block_takes_known_calls() -> None:
    def program(rank: int) -> None:
        warm_up()
        x, y = np.ones(2, np.float32), np.ones(2, np.float32)
        before = hits()
        with dist._coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(y)
            assert x.tolist() == [1, 1]
        assert hits() == before
        assert x.tolist() == y.tolist() == [SIZE] * 2
        reduce_ones()
        assert is_known(reduce_ones)

    run(program)


def test_arrays_of_ops_in_flight_are_compared_with_those_of_known_calls() -> None:
    def program(rank: int) -> None:
        x, other = np.ones(2, np.float32), np.ones(2, np.float32)
        for _ in range(3):
            send_around(x, other)
        flying = dist.irecv(x, 1 - rank, tag=9)
        assert flying is not None
        before = hits()
        send_around(x, other)
        assert hits() == before
        starting = dist.isend(other, 1 - rank, tag=9)
        assert starting is not None
        starting.wait()
        flying.wait()

    with pytest.warns(
        dist.LatentWarning, match="send on group 'world' shares memory with irecv|recv"
    ):
        run(program)


def test_known_calls_go_behind_ops_in_flight() -> None:
    def program(rank: int) -> None:
        warm_up()
        x, y = np.ones(2, np.float32), np.ones(100_000, np.float32)
        work = dist.all_reduce(y, async_op=True)
        assert work is not None
        dist.all_reduce(x)
        work.wait()
        assert x.tolist() == [SIZE] * 2
        assert y[0] == SIZE
        assert is_known(reduce_ones)

    run(program)


def test_a_group_that_was_left_knows_nothing() -> None:
    def program(rank: int) -> None:
        group = dist.new_group([0, 1])
        assert isinstance(group, ProcessGroup)
        x = np.ones(2, np.float32)
        for _ in range(3):
            dist.all_reduce(x, group=group)
        dist.destroy_process_group(group)
        with pytest.raises(UsageError, match="was destroyed"):
            dist.all_reduce(x, group=group)
        warm_up()
        dist.destroy_process_group()
        with pytest.raises(UsageError, match="has not been initialized"):
            dist.all_reduce(x)

    run(program)


def fork_and_call() -> list[Any]:
    dist.init_process_group()
    warm_up()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(np.ones(2, np.float32))
            said = "went well"
        except dist.DistError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    said = os.read(read, 4096).decode()
    os.close(read)
    return [said, is_known(reduce_ones)]


def test_a_forked_child_knows_nothing(ranks: Callable[..., list[Any]]) -> None:
    for said, is_known_here in ranks(fork_and_call, SIZE):
        assert "it belongs to the parent process" in said
        assert is_known_here


def test_each_world_has_groups_of_its_own() -> None:
    def program(rank: int) -> None:
        warm_up()
        with use(World()), pytest.raises(UsageError, match="has not been initialized"):
            dist.all_reduce(np.ones(2, np.float32))
        assert is_known(reduce_ones)

    run(program)


def test_an_engine_of_whatever_kind_is_looked_at() -> None:
    class Slotted:
        __slots__ = ("inner",)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    class Bare(ProcessGroup):
        def __init__(self) -> None:
            """Nothing of what the others have."""

        def run(self, call: Any, async_op: bool = False) -> Any:
            return -1

    def program(rank: int) -> None:
        warm_up()
        inner = world().engine
        world().engine = Slotted(inner)  # type: ignore[assignment]
        for _ in range(3):
            assert not is_known(reduce_ones)
        world().engine = inner
        for _ in range(3):
            dist.all_reduce(np.ones(1), group=Bare())

    run(program)


def test_what_is_no_cache_is_not_taken_for_one() -> None:
    def program(rank: int) -> None:
        warm_up()
        world().known_calls = object()  # type: ignore[assignment]
        reduce_ones()

    run(program)
