"""What goes wrong on the way through NCCL: who is told, of what, and that the group ends cleanly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.clock import FREE_CLOCK
from distdbg.errors import (
    DistBackendError,
    MismatchError,
    OpTimeout,
    UsageError,
)
from distdbg.runtime.backends.nccl import ending, library
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.failures import advice
from distdbg.runtime.backends.nccl.watchdog import watchdog
from distdbg.runtime.groups.coalesced import together
from tests.unit.nccl.stand_in import (
    Machine,
    NcclError,
    StandInArray,
    StandInCommunicator,
    of_rank,
    sum_of,
    use,
)

LIMIT_S = 60
NO_DEADLINE = 2**63 - 1
Make = Callable[..., NcclEngine]


class Blocking(StandInCommunicator):
    """Its calls block the host until it is aborted."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.is_released = threading.Event()

    def allReduce(self, *_: Any) -> None:
        assert self.is_released.wait(LIMIT_S)

    def abort(self) -> None:
        self.is_released.set()
        super().abort()


@pytest.mark.parametrize("level", ["DETAIL", "INFO"])
def test_a_call_that_blocks_the_host_is_broken_off_at_the_limit(
    machine: Machine, level: str
) -> None:
    use(lambda size, unique_id, rank: Blocking(machine, size, unique_id, rank))

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        pg = dist.new_group(backend="nccl")
        with pytest.raises(dist.DistError, match="all_reduce"):
            dist.all_reduce(of_rank([1]), group=pg, timeout=0.05)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == {0, 1}


def test_arrays_are_kept_until_an_abort_that_takes_too_long_has_returned(
    machine: Machine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_released = threading.Event()

    class Slow(StandInCommunicator):
        def abort(self) -> None:
            assert is_released.wait(LIMIT_S)
            super().abort()

    monkeypatch.setattr(ending, "_PATIENCE_NS", 1)
    use(lambda size, unique_id, rank: Slow(machine, size, unique_id, rank))
    machine.hangs = True
    engine = make()
    pending = engine.submit(sum_of([1]))
    giver = threading.Thread(target=engine.abort, args=("somebody gave it up",))
    giver.start()
    pending.wait_on_host()  # whoever waits is told, though the abort goes on
    assert engine.ending._held == [pending]
    assert engine.ending in ending._late
    is_released.set()
    giver.join(LIMIT_S)
    assert engine.ending._held == []
    assert engine.ending not in ending._late


def test_the_end_of_a_group_of_calls_that_blocks_is_broken_off(
    machine: Machine, make: Make
) -> None:
    is_released = threading.Event()

    class Lazy(StandInCommunicator):
        def abort(self) -> None:
            is_released.set()
            super().abort()

    use(lambda size, unique_id, rank: Lazy(machine, size, unique_id, rank))
    library.load().nccl.groupEnd = lambda: is_released.wait(LIMIT_S)
    engine = make(0.05)
    engine.begin_block()
    pending = engine.submit(sum_of([1]))
    engine.end_block()
    assert machine.aborted == {0}
    with pytest.raises(OpTimeout, match="all_reduce"):
        pending.wait(NO_DEADLINE)


def test_the_watchdog_lets_go_of_an_op_that_nccl_refused(machine: Machine, make: Make) -> None:
    engine = make()
    engine.run(sum_of([1]))
    machine.error = NcclError("NCCL_ERROR_INVALID_ARGUMENT")
    with pytest.raises(DistBackendError, match="INVALID_ARGUMENT"):
        engine.run(sum_of([1]))
    assert not engine._in_flight


@pytest.mark.parametrize("level", ["DETAIL", "INFO", "OFF"])
def test_the_error_of_the_last_op_is_raised_when_the_group_is_destroyed(
    machine: Machine, level: str
) -> None:
    def program() -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        pg = dist.new_group(backend="nccl")
        dist.all_reduce(of_rank([1]), group=pg)
        dist.barrier()
        machine.hangs = True
        dist.barrier()
        try:
            dist.all_reduce(of_rank([1]), group=pg, timeout=0.05)
        except dist.DistError:  # the other rank has given up already: this one is told
            dist.destroy_process_group(pg)
            return
        with pytest.raises(dist.DistError, match="all_reduce"):
            dist.destroy_process_group(pg)

    dist.run_threads(program, 1 if level == "OFF" else 2, timeout_s=LIMIT_S)
    assert machine.aborted == ({0} if level == "OFF" else {0, 1})


def test_a_difference_in_the_last_op_is_raised_when_the_group_is_destroyed(
    machine: Machine,
) -> None:
    def end(pg: dist.ProcessGroup) -> None:
        dist.all_reduce(of_rank([1]), group=pg)  # makes the communicator
        dist.all_reduce(of_rank(np.zeros(3 + dist.get_rank())), group=pg)  # returns, for one rank
        dist.destroy_process_group(pg)

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        with pytest.raises(MismatchError, match="all_reduce"):
            end(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == {0, 1}
    assert machine.destroyed == set()


def test_a_difference_is_told_to_a_rank_that_waits_for_the_communicator(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, is_reported = library.load(), threading.Event()
    new_id = lib.new_id

    def make_late() -> bytes:
        assert is_reported.wait(LIMIT_S)
        return new_id()

    monkeypatch.setattr(lib, "new_id", make_late)

    def program() -> None:
        pg = dist.new_group(backend="nccl")

        def end() -> None:
            dist.all_reduce(of_rank(np.zeros(3 + dist.get_rank())), group=pg)
            dist.destroy_process_group(pg)

        with pytest.raises(MismatchError, match="all_reduce"):
            end()
        if dist.get_rank() == 1:
            is_reported.set()

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert {rank for rank, _, _ in machine.calls} <= {0}


def test_a_list_on_one_rank_and_one_array_on_another_are_one_op(machine: Machine) -> None:
    def program() -> None:
        pg, me = dist.new_group(backend="nccl", device_id=dist.get_rank()), dist.get_rank()
        parts, flat, x = [of_rank([0]), of_rank([0])], of_rank([0, 0]), of_rank([1])
        if me == 0:
            dist.all_gather(parts, x, group=pg)
            dist.reduce_scatter(x, parts, group=pg)
        else:
            dist.all_gather_into_tensor(flat, x, group=pg)
            dist.reduce_scatter_tensor(x, flat, group=pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    for rank in (0, 1):
        called = [method for method in machine.methods(rank) if method != "memcpyAsync"]
        assert called == ["allGather", "reduceScatter"]


def test_what_was_told_is_not_raised_again_when_the_group_is_destroyed(
    machine: Machine,
) -> None:
    def program() -> None:
        pg = dist.new_group(backend="nccl")
        machine.hangs = True
        work = dist.all_reduce(of_rank([1]), group=pg, async_op=True, timeout=0.05)
        with pytest.raises(dist.DistError, match="all_reduce"):
            work.wait(timedelta(seconds=LIMIT_S))
        dist.destroy_process_group(pg)
        machine.hangs = False

        mine = dist.new_group(backend="nccl")
        machine.hangs = True
        dist.all_reduce(of_rank([1]), group=mine)
        mine.abort()
        dist.destroy_process_group(mine)

    dist.run_threads(program, 1, timeout_s=LIMIT_S)


def test_a_wait_in_a_group_that_was_given_up_raises(machine: Machine, make: Make) -> None:
    engine = make()
    machine.hangs = True
    pending = engine.submit(sum_of([1]))
    watchdog.remove(pending)  # it is late
    engine.abort("somebody gave it up")
    with pytest.raises(DistBackendError, match=r"all_reduce .* cannot end: somebody gave it up"):
        pending.wait(NO_DEADLINE)


def test_an_error_after_nccl_has_the_op_ends_op_and_group(machine: Machine, make: Make) -> None:
    engine = make()
    engine.run(sum_of([1]))

    def fail(**_: object) -> None:
        raise MemoryError("out of memory")

    assert engine.streams is not None
    # The stand-in records events without end; on a device that fails when memory has run out.
    engine.streams.event = fail  # type: ignore[method-assign]  # CUDA fails here
    with pytest.raises(DistBackendError, match=r"all_reduce .* failed: out of memory"):
        engine.run(sum_of([1]))
    assert not engine._in_flight
    assert machine.aborted == {0}


def test_an_error_in_a_block_at_detail_reaches_who_waits(machine: Machine) -> None:
    def fail() -> None:
        raise ValueError("no error of NCCL")

    library.load().nccl.groupEnd = fail

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        pg = dist.new_group(backend="nccl")
        with dist._coalescing_manager(pg, async_ops=True) as block:
            dist.all_reduce(of_rank([1]), group=pg)
            dist.all_reduce(of_rank([1, 2]), group=pg)
        with pytest.raises(dist.DistError, match="all_reduce"):
            block.wait()

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == {0, 1}


def test_a_communicator_is_not_aborted_inside_of_a_group_of_calls(
    machine: Machine, make: Make
) -> None:
    order: list[str] = []

    class Noting(StandInCommunicator):
        def abort(self) -> None:
            order.append("abort")

    use(lambda size, unique_id, rank: Noting(machine, size, unique_id, rank))
    library.load().nccl.groupEnd = lambda: order.append("groupEnd")
    engine = make()
    engine.begin_block()
    first = engine.submit(sum_of([1]))
    machine.error = NcclError("NCCL_ERROR_INVALID_ARGUMENT")
    with pytest.raises(DistBackendError, match="INVALID_ARGUMENT"):
        engine.submit(sum_of([1]))
    engine.end_block()
    with pytest.raises(DistBackendError, match="INVALID_ARGUMENT"):
        first.wait(NO_DEADLINE)
    assert order == ["groupEnd", "abort"]

    order.clear()
    other = make()
    other.begin_block()
    other.submit(sum_of([1]))
    other.abort("from somewhere else")
    assert order == []
    other.end_block()
    assert order == ["groupEnd", "abort"]


def test_a_communicator_that_is_being_destroyed_can_be_aborted(
    machine: Machine, make: Make
) -> None:
    class Slow(StandInCommunicator):
        def destroy(self) -> None:
            engine.abort("while it was destroyed")

    use(lambda size, unique_id, rank: Slow(machine, size, unique_id, rank))
    engine = make()
    engine.run(sum_of([1]))
    engine.close()
    assert machine.aborted == {0}


def test_an_error_of_cuda_at_an_event_ends_the_op(machine: Machine, make: Make) -> None:
    engine = make()
    machine.hangs = True
    pending = engine.submit(sum_of([1]))
    machine.event_status = 700
    with pytest.raises(DistBackendError, match=r"all_reduce .* 700"):
        pending.wait(FREE_CLOCK.now_ns() + LIMIT_S * 10**9)
    assert machine.aborted == {0}


def test_the_watchdog_outlives_what_nobody_has_foreseen(machine: Machine, make: Make) -> None:
    def fail() -> None:
        raise KeyError("what a watch never raises")

    machine.hangs = True
    wrong = make().submit_watched(sum_of([1]), fail)
    engine, call, has_ended = make(0.05), sum_of([1]), threading.Event()
    engine.side_of(call).on_end = lambda _: has_ended.set()
    late = engine.submit(call)
    with pytest.raises(DistBackendError, match="what a watch never raises"):
        wrong.wait(FREE_CLOCK.now_ns() + LIMIT_S * 10**9)
    assert has_ended.wait(LIMIT_S)  # nobody but the watchdog looks
    with pytest.raises(OpTimeout):
        late.wait(NO_DEADLINE)


def test_arrays_are_let_go_when_the_abort_has_come_back(machine: Machine, make: Make) -> None:
    seen: list[bool] = []

    class Noting(StandInCommunicator):
        def abort(self) -> None:
            seen.append(pending.is_over)

    use(lambda size, unique_id, rank: Noting(machine, size, unique_id, rank))
    machine.hangs = True
    engine = make(0.05)
    pending = engine.submit(sum_of([1]))
    with pytest.raises(OpTimeout, match="all_reduce"):
        pending.wait(FREE_CLOCK.now_ns() + LIMIT_S * 10**9)
    assert seen == [False]


def test_ops_of_a_block_start_in_the_order_in_which_they_are_numbered(machine: Machine) -> None:
    def program() -> None:
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        x, flat = of_rank([1]), of_rank([0, 0])
        dist.all_reduce(x, group=pg)
        gather = partial(dist.all_gather_into_tensor, flat, of_rank([1]), pg)
        if me == 1:
            gather()
        with together(pg):
            work = dist.all_reduce(x, group=pg, async_op=True)
            with pytest.raises(UsageError, match="inside of the block"):
                work.wait()
            if me == 0:
                thread = threading.Thread(target=partial(copy_context().run, gather))
                thread.start()
                thread.join(LIMIT_S)
        work.wait()
        dist.barrier()

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    for rank in (0, 1):
        called = [method for method in machine.methods(rank) if not method.startswith("group")]
        assert called == ["allReduce", "allGather", "allReduce"]


class Interface:
    """Only says where its memory is."""

    def __init__(self, x: StandInArray) -> None:
        self.x, self.shape, self.dtype, self.strides = x, x.shape, x.dtype, x.strides
        self.size, self.flags = x.size, {"C_CONTIGUOUS": True}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.x.__cuda_array_interface__


def test_an_array_of_another_library_is_an_error_that_says_what_is_taken(machine: Machine) -> None:
    def program() -> None:
        for backend in ("nccl", "gloo"):
            pg = dist.new_group(backend=backend)
            with pytest.raises(UsageError, match="CuPy's and CUDA tensors are taken"):
                dist.all_reduce(Interface(of_rank([1])), group=pg)

    dist.run_threads(program, 1, timeout_s=LIMIT_S)


def test_the_text_of_an_error_starts_no_cuda(machine: Machine, monkeypatch: Any) -> None:
    monkeypatch.setattr(library, "why_not", lambda: pytest.fail("CUDA was started"))

    def program() -> None:
        with pytest.raises(dist.DistError, match=r"available: .*nccl"):
            dist.new_group(backend="xccl")

    dist.run_threads(program, 1, timeout_s=LIMIT_S)


def test_an_error_of_float8_names_the_devices_that_have_it() -> None:
    assert "compute capability 9.0" in advice("invalid argument: float8 reduction, type 10")
