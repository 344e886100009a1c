"""Groups over NCCL through the public API, on ranks that are threads, with a recording stand-in for NCCL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistBackendError, MismatchError, OpTimeout, UsageError
from distdbg.record.entries import OpEntry
from distdbg.record.reader import read_record
from distdbg.runtime.backends.nccl import library
from distdbg.runtime.backends.nccl.splitting import nccl_engine_of
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


def test_at_info_a_difference_ends_what_nccl_has_already(machine: Machine) -> None:
    def differ(pg: dist.ProcessGroup) -> None:
        while True:  # an op is queued at once; the next one raises what was found
            dist.all_reduce(gpu(np.zeros(3 + dist.get_rank())), group=pg)

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.INFO)
        pg = new_group()
        dist.all_reduce(gpu([1]), group=pg)
        machine.hangs = True
        with pytest.raises(MismatchError, match="all_reduce"):
            differ(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == {0, 1}


def test_groups_of_a_group_with_a_device_are_parts_of_its_communicator(machine: Machine) -> None:
    def program() -> None:
        me = dist.get_rank()
        pg = new_group(device_id=me)
        dist.all_reduce(gpu([1]), group=pg)
        mine = dist.split_group(pg, [[0, 2]])
        if mine is None:
            assert me == 1
            return
        dist.broadcast(gpu([1]), group=mine, group_src=1)
        dist.destroy_process_group(mine)

    dist.run_threads(program, 3, timeout_s=LIMIT_S)
    assert [step for _, *step in machine.calls if step[0] == "commSplit"].count(
        ["commSplit", (-1, -1)]
    ) == 1
    assert machine.of(0)[1] == ("commSplit", (0, 0))
    assert machine.of(2)[1] == ("commSplit", (0, 1))


def test_ranks_that_split_a_group_differently_are_told_before_nccl_is(machine: Machine) -> None:
    reported: list[MismatchError] = []

    def program() -> None:
        me = dist.get_rank()
        pg = new_group(device_id=me)
        with pytest.raises(MismatchError, match="split it differently") as error:
            dist.split_group(pg, [[0, 1], [2]] if me == 2 else [[0, 1]])
        reported.append(error.value)
        with pytest.raises(MismatchError, match="split it differently"):
            dist.split_group(pg, [[0, 1]], backend="gloo" if me == 1 else None)
        dist.split_group(pg, [[0, 1]])  # the parent goes on

    dist.run_threads(program, 3, timeout_s=LIMIT_S)
    assert [call[1] for call in machine.calls].count("commSplit") == 3
    assert [list(error.ranks) for error in reported] == [[2]] * 3
    assert "rank 2: split_group of [0-1], [2], no device_id at" in "".join(reported[0].details)
    assert __file__ in reported[0].details[0]


def test_where_one_rank_cannot_split_none_waits_for_it_in_nccl(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        pg = new_group(device_id=dist.get_rank())
        if dist.get_rank() == 1:
            engine = nccl_engine_of(pg)
            assert engine is not None
            monkeypatch.setattr(engine, "communicator_at_rest", lambda: object())  # CuPy before 14
        dist.barrier()
        mine = dist.split_group(pg, [[0, 1]])
        dist.all_reduce(gpu([1]), group=mine)
        dist.destroy_process_group(mine)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert "commSplit" not in machine.methods(0) + machine.methods(1)
    assert machine.methods(0).count("allReduce") == 1


def test_an_op_that_takes_too_long_is_aborted_and_told_once(machine: Machine) -> None:
    def run_late(pg: dist.ProcessGroup) -> None:
        # The rank that is late to see it may be told by the other before it has queued its own.
        work = dist.all_reduce(gpu([1]), group=pg, async_op=True, timeout=0.05)
        assert work is not None
        work.wait(timedelta(seconds=LIMIT_S))

    def program() -> None:
        pg = new_group()
        dist.all_reduce(gpu([1]), group=pg)
        dist.barrier()
        machine.hangs = True
        dist.barrier()
        with pytest.raises(dist.DistError, match="all_reduce"):
            run_late(pg)
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


def test_the_record_has_an_op_until_the_device_has_done_it(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))
    path = tmp_path / "rank00000.ddr"

    def find() -> OpEntry:
        return next(op for op in read_record(path).ops if op.name == "broadcast")

    def program() -> None:
        pg = new_group("cpu:gloo,cuda:nccl")
        machine.hangs = True
        dist.broadcast(gpu([1, 2, 3]), 0, group=pg)
        dist.all_reduce(np.ones(1), group=pg)
        _, begun, _ = list(machine.events.values())[-3:]
        assert find().started_ns is None  # the device has not come to it
        begun.is_over = True
        while find().started_ns is None:
            pass  # until the watchdog has looked
        assert find().ended_ns is None
        machine.hangs = False
        while find().ended_ns is None:
            pass

    dist.run_threads(program, 1, timeout_s=LIMIT_S)
    op = find()
    assert op.form is not None
    assert (op.form.device, op.form.dtype, op.status_label) == ("cuda:0", "float32", "ok")
    assert op.group.name == "1"
    on_host = next(op for op in read_record(path).ops if op.name == "all_reduce")
    assert on_host.group.name == "1/host"


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
