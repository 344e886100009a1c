"""Groups over NCCL through the public API, on ranks that are threads, with a recording stand-in for NCCL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistBackendError, MismatchError, OpTimeout, UsageError
from distdbg.runtime.backends.nccl import library
from tests.unit.nccl.stand_in import Machine, NcclError, StandInArray

LIMIT_S = 60


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine()
    monkeypatch.setattr(library, "_library", machine.library())
    monkeypatch.setenv("DISTDBG_DEBUG", "detail")
    return machine


def gpu(values: Any, dtype: Any = np.float32) -> StandInArray:
    return StandInArray(np.array(values, dtype), dist.get_rank())


def new_group(backend: str = "nccl", **options: Any) -> dist.ProcessGroup:
    return dist.new_group(backend=backend, **options)


def test_ops_reach_nccl_after_the_ranks_have_agreed(machine: Machine) -> None:
    def program() -> None:
        pg, me = new_group(), dist.get_rank()
        assert dist.get_backend(pg) == "nccl"
        dist.all_reduce(gpu([1, 2]), group=pg)
        work = dist.broadcast(gpu([1, 2]), 0, group=pg, async_op=True)
        assert work is not None
        assert work.wait()
        dist.barrier(pg)
        if me == 0:
            dist.send(gpu([1]), 1, pg)
        else:
            assert dist.recv(gpu([0]), 0, pg) == 0
        out = gpu(np.zeros(4))
        dist.all_gather_into_tensor(out, out[2 * me : 2 * me + 2], group=pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    for rank, message in enumerate(("send", "recv")):
        expected = ["allReduce", "broadcast", "allReduce", message, "allGather"]
        assert machine.methods(rank) == expected
    assert machine.destroyed == {0, 1}
    assert library.why_not() is None
    assert dist.is_nccl_available()


def test_the_device_of_the_arrays_picks_the_backend(machine: Machine) -> None:
    def program() -> None:
        pg = new_group("cpu:gloo,cuda:nccl")
        x = np.ones(3)
        dist.all_reduce(x, group=pg)
        assert x.tolist() == [2, 2, 2]
        dist.barrier(pg)
        dist.all_reduce(gpu([1]), group=pg)
        with pytest.raises(UsageError, match="some of its arrays are on the host"):
            dist.all_gather([gpu([1]), gpu([1])], np.ones(1, np.float32), group=pg)
        # A group for GPUs takes objects, and arrays on the host, beside NCCL.
        alone = new_group("nccl")
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, dist.get_rank(), alone)
        assert objects == [0, 1]
        dist.monitored_barrier(alone)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.methods(0) == machine.methods(1) == ["allReduce"]


def test_blocks_and_batches_are_one_group_of_calls(machine: Machine) -> None:
    def program(level: str) -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        pg, other = new_group(), 1 - dist.get_rank()
        with dist._coalescing_manager(pg, async_ops=True) as block:
            dist.all_reduce(gpu([1]), group=pg)
            dist.all_reduce(gpu([1, 2]), group=pg)
        block.wait()
        ops = [
            dist.P2POp(dist.isend, gpu([1]), other, pg),
            dist.P2POp(dist.irecv, gpu([1]), other, pg),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    for level in ("DETAIL", "INFO", "OFF"):
        machine.calls.clear()
        dist.run_threads(program, 2, level, timeout_s=LIMIT_S)
        for rank in (0, 1):
            got = [method for method in machine.methods(rank) if not method.startswith("group")]
            assert got == ["allReduce", "allReduce", "recv", "send"]
        loose = [method for _, method, _ in machine.calls if method.startswith("group")]
        assert sorted(loose) == ["groupEnd"] * 4 + ["groupStart"] * 4


def test_a_difference_is_an_error_before_nccl_is_called(machine: Machine) -> None:
    def program() -> None:
        pg, me = new_group(), dist.get_rank()
        with pytest.raises(MismatchError) as differs:
            dist.all_reduce(gpu(np.zeros(3 + me)), group=pg)
        assert differs.value.ranks
        work = dist.all_reduce(
            gpu([1]), dist.ReduceOp.MAX if me else dist.ReduceOp.SUM, pg, async_op=True
        )
        assert work is not None
        with pytest.raises(MismatchError):
            work.wait()
        assert machine.calls == []
        dist.all_reduce(gpu([1]), group=pg)  # the group goes on

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.methods(0) == ["allReduce"]


def test_an_op_that_takes_too_long_is_aborted_and_told_once(machine: Machine) -> None:
    def program() -> None:
        pg = new_group()
        dist.all_reduce(gpu([1]), group=pg)
        dist.barrier()
        machine.hangs = True
        dist.barrier()
        work = dist.all_reduce(gpu([1]), group=pg, async_op=True, timeout=0.05)
        assert work is not None
        with pytest.raises((OpTimeout, dist.DistError)) as late:
            work.wait(timedelta(seconds=LIMIT_S))
        assert "all_reduce" in str(late.value)
        with pytest.raises(dist.DistError, match="all_reduce"):
            dist.all_reduce(gpu([1]), group=pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == {0, 1}
    assert machine.destroyed == set()


def test_a_late_error_is_raised_by_the_next_op(machine: Machine) -> None:
    def program() -> None:
        pg = new_group(device_id=dist.get_rank())
        machine.hangs = True
        dist.all_reduce(gpu([1]), group=pg, timeout=0.05)  # returns: the device goes on
        while not machine.aborted:
            dist.barrier()  # the host's ops go on meanwhile
        with pytest.raises(OpTimeout, match="all_reduce"):
            dist.all_reduce(gpu([1]), group=pg)

    dist.run_threads(program, 1, timeout_s=LIMIT_S)


def test_two_ranks_on_one_gpu_are_named_before_nccl_is_asked(machine: Machine) -> None:
    def program() -> None:
        with pytest.raises(DistBackendError, match="ranks 0 and 1 are both on cuda:0") as same:
            new_group(device_id="cuda:0")
        assert same.value.hint is not None
        assert "backend='gloo'" in same.value.hint

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.calls == []


def test_an_error_of_nccl_has_its_own_words_and_advice(machine: Machine) -> None:
    machine.last_error = "Error: failed to extend /dev/shm/nccl-x to 9637892 bytes"

    def program() -> None:
        pg = new_group()
        machine.error = NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        with pytest.raises(DistBackendError, match="unhandled system error") as failed:
            dist.all_reduce(gpu([1]), group=pg)
        assert "/dev/shm/nccl-x" in str(failed.value)
        assert failed.value.hint is not None
        assert "--shm-size" in failed.value.hint

    dist.run_threads(program, 1, timeout_s=LIMIT_S)
    assert machine.aborted == {0}


def test_a_second_device_in_one_group_is_refused(machine: Machine) -> None:
    def program() -> None:
        pg = new_group(device_id=0)
        with pytest.raises(UsageError, match="an array is on cuda:1"):
            dist.all_reduce(StandInArray(np.ones(1), 1), group=pg)
        with pytest.raises(UsageError, match="'tpu' is not a CUDA device"):
            new_group(device_id="tpu")

    dist.run_threads(program, 1, timeout_s=LIMIT_S)
