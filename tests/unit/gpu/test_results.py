"""What ops on GPU arrays leave in them, beside the same ops on the host. The GPU is a stand-in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg import _native
from distdbg.errors import UsageError
from distdbg.native import View
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, check_reduce
from distdbg.runtime.backends.gpu import capabilities, chunks
from tests.unit.gpu.stand_in import Machine

#: Words of 16 bytes do not come out even in any dtype, and it is several chunks.
COUNT = 601
#: For a machine that has other things to do.
LIMIT_S = 240


@pytest.fixture(params=["ipc", "chunks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, machine: Machine) -> str:
    if request.param == "chunks":
        monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
        monkeypatch.setattr(capabilities, "takes_small_too", lambda: True)
        monkeypatch.setattr(chunks, "CHUNK_NBYTES", 1)
    return str(request.param)


def brought(rank: int, dtype: Dtype, count: int = COUNT) -> Any:
    """Small whole numbers: exact in every dtype and order."""
    return ((np.arange(count) * 7 + rank * 3) % 3 + 1).astype(dtype.to_numpy())


def reductions() -> list[tuple[Dtype, Any]]:
    """Every dtype, and every op on some; all of them are in test_kernels.py."""
    many = (Dtype.bool_, Dtype.int32, Dtype.bfloat16, Dtype.complex64)
    pairs = [
        *[(dtype, RedOpType.SUM) for dtype in Dtype if dtype not in many],
        *[(dtype, op) for dtype in many for op in (*RedOpType, dist.make_premul_sum(0.5))],
    ]
    found: list[tuple[Dtype, Any]] = []
    for dtype, op in pairs:
        try:
            check_reduce(op, dtype)
        except UsageError:
            continue
        found.append((dtype, op))
    return found


def folded(dtype: Dtype, op: Any, sources: list[Any]) -> bytes:
    """As the host's engine does it."""
    result = np.zeros_like(sources[0])
    code = int(op.op)
    if op.factor is not None:
        code, sources = int(RedOpType.SUM), [x * np.asarray(op.factor, x.dtype) for x in sources]
    views = [View(np.ascontiguousarray(x), False) for x in sources]
    _native.fold(code, int(dtype), View(result, True), views)
    return result.tobytes()


def reduce_everything(machine: Machine) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, op in reductions():
        x = machine.array(brought(rank, dtype), dtype.to_numpy())
        dist.all_reduce(x, op)
        wanted = folded(dtype, op, [brought(r, dtype) for r in range(size)])
        assert x.host.tobytes() == wanted, (dtype, op)
    for dtype, op in ((Dtype.float32, RedOpType.AVG), (Dtype.float16, dist.make_premul_sum(0.5))):
        flat = [brought(r, dtype, size * COUNT) for r in range(size)]
        found = machine.array(np.zeros(COUNT), dtype.to_numpy())
        dist.reduce_scatter_tensor(found, machine.array(flat[rank], dtype.to_numpy()), op)
        mine = slice(rank * COUNT, (rank + 1) * COUNT)
        assert found.host.tobytes() == folded(dtype, op, [x[mine] for x in flat]), (dtype, op)


def test_reductions_have_every_dtype_and_op(machine: Machine, way: str) -> None:
    dist.run_threads(reduce_everything, 2, machine, timeout_s=LIMIT_S)
    assert ("kernel" in machine.names(0)) == (way == "ipc")


def test_a_sum_is_bit_for_bit_the_same_on_all_ranks(machine: Machine) -> None:
    """In the order of the ranks, though each of them adds up a part."""

    def mine(rank: int) -> Any:
        return np.random.default_rng(rank).standard_normal(COUNT).astype(np.float32)

    def program() -> bytes:
        x = machine.array(mine(dist.get_rank()))
        dist.all_reduce(x)
        return x.host.tobytes()

    wanted = np.zeros(COUNT, np.float32)
    sources = [View(mine(rank), False) for rank in range(4)]
    _native.fold(int(RedOpType.SUM), int(Dtype.float32), View(wanted, True), sources)
    assert dist.run_threads(program, 4, timeout_s=LIMIT_S) == [wanted.tobytes()] * 4


def move_everything(machine: Machine) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()

    def gpu(values: Any) -> Any:
        return machine.array(values, np.int64)

    def empty(count: int = COUNT) -> Any:
        return gpu(np.zeros(count))

    def of(who: int, count: int = COUNT) -> Any:
        return np.arange(count, dtype=np.int64) + 1000 * who

    x = gpu(of(rank))
    dist.broadcast(x, size - 1)
    assert (x.host == of(size - 1)).all()
    flat = empty(size * COUNT)
    dist.all_gather_into_tensor(flat, gpu(of(rank)))
    assert (flat.host == np.concatenate([of(r) for r in range(size)])).all()
    rows = [empty(3 + r) for r in range(size)]  # of a size for each
    dist.all_gather(rows, gpu(of(rank, 3 + rank)))
    assert all((row.host == of(r, 3 + r)).all() for r, row in enumerate(rows))
    lists = [empty() for _ in range(size)] if rank == 1 else None
    dist.gather(gpu(of(rank)), lists, dst=1)
    assert lists is None or all((x.host == of(r)).all() for r, x in enumerate(lists))
    dist.scatter(x, [gpu(of(r)) for r in range(size)] if rank == 0 else None, src=0)
    assert (x.host == of(rank)).all()
    dist.reduce(x, 1)
    assert rank != 1 or (x.host == sum(of(r) for r in range(size))).all()
    # Rank r gets r elements of each: rank 0 none.
    out = empty(size * rank)
    sent = gpu(np.concatenate([of(rank, r) for r in range(size)]))
    dist.all_to_all_single(out, sent, [rank] * size, list(range(size)))
    assert (out.host == np.concatenate([of(r, rank) for r in range(size)])).all()
    parts = [gpu(of(10 * rank + r)) for r in range(size)]
    found = [empty() for _ in range(size)]
    dist.all_to_all(found, parts)
    assert all((x.host == of(10 * r + rank)).all() for r, x in enumerate(found))
    # Columns, of which neither the input nor the output is one piece.
    table = gpu(np.arange(6).reshape(3, 2) + rank)
    column = table[:, 1]
    dist.all_reduce(column)
    summed = sum(np.arange(1, 6, 2) + r for r in range(size))
    assert (table.host[:, 1] == summed).all()
    assert (table.host[:, 0] == np.arange(0, 6, 2) + rank).all()
    # Not where a word of 16 bytes begins.
    odd = gpu(of(rank))[1:]
    dist.all_reduce(odd)
    assert (odd.host == sum(of(r)[1:] for r in range(size))).all()


@pytest.mark.parametrize("size", [2, 4])
def test_blocks_come_where_they_belong(machine: Machine, way: str, size: int) -> None:
    dist.run_threads(move_everything, size, machine, timeout_s=LIMIT_S)


def test_asynchronous_ops_end_in_order_and_beside_messages(machine: Machine, way: str) -> None:
    def program() -> None:
        rank = dist.get_rank()
        xs = [machine.array(np.full(COUNT, rank + i)) for i in range(5)]
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        note = machine.array([0])
        # The group's thread carries them out, also while this one waits for something else.
        if rank:
            dist.recv(note, 0)
        else:
            dist.send(machine.array([5]), 1)
        last = machine.array(np.full(COUNT, rank))
        dist.all_reduce(last)  # behind them
        for i, (x, work) in enumerate(zip(xs, works, strict=True)):
            assert work is not None
            work.wait()
            assert work.is_completed()
            assert (x.host == 1 + 2 * i).all()
        assert (last.host == 1).all()

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
