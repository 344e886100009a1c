"""The calls of NCCL that each op makes, on 1, 2 and 4 ranks, as a recording stand-in got them.

Ranks are engines without the check, which is not asked for here: they share no memory and need not meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distdbg as dist
from distdbg.control.clock import FREE_CLOCK
from distdbg.errors import UsageError
from distdbg.ops.call import Call
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.options import NcclOptions
from tests.unit.nccl.stand_in import VERSION, Machine, StandInArray

FLOAT32, UINT8 = 7, 1
SUM, PROD, MAX, MIN, AVG = range(5)
SIZES = (1, 2, 4)


_made: list[Rank] = []


@pytest.fixture(autouse=True)
def _close_them() -> Iterator[None]:
    yield
    while _made:
        _made.pop().engine.close()


class Rank:
    """One rank's engine, and the arrays by which its calls are read."""

    def __init__(self, rank: int, size: int, version: int = VERSION) -> None:
        self.machine = Machine()
        self.rank, self.size = rank, size
        self.library = self.machine.library(version)
        self.engine = NcclEngine(
            self.library,
            self._open,
            name="test",
            rank=rank,
            size=size,
            timeout_s=60.0,
            clock=FREE_CLOCK,
            options=NcclOptions(),
            is_alone=True,
        )
        _made.append(self)

    def _open(self, device: int, _: object, pair: tuple[int, int] | None = None) -> Any:
        size, rank = (self.size, self.rank) if pair is None else (2, sorted(pair).index(self.rank))
        return self.library.open_communicator(size, self.library.new_id(), rank)

    def run(self, call: Call, stream: int = 100) -> list[tuple[str, tuple[Any, ...]]]:
        """The calls without the stream, which is the group's own, or a pair's."""
        before = len(self.machine.calls)
        self.engine.run(call)
        made = []
        for _, method, args in self.machine.calls[before:]:
            if method not in ("groupStart", "groupEnd", "make_premul_sum", "destroy_op"):
                assert args[-1] == stream
                args = args[:-1]
            made.append((method, args))
        return made


def gpu(*shape: int, dtype: Any = np.float32) -> StandInArray:
    return StandInArray(np.zeros(shape, dtype))


def each(size: int) -> list[Rank]:
    return [Rank(rank, size) for rank in range(size)]


@pytest.mark.parametrize("size", SIZES)
def test_broadcast(size: int) -> None:
    for rank in each(size):
        x = gpu(3)
        made = rank.run(calls.broadcast(size, x, size - 1))
        assert made == [("broadcast", (x.address, x.address, 3, FLOAT32, size - 1))]


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_and_reduce(size: int) -> None:
    for rank in each(size):
        x = gpu(3)
        at = x.address
        assert rank.run(calls.all_reduce(x, ReduceOp.MAX)) == [
            ("allReduce", (at, at, 3, FLOAT32, MAX))
        ]
        assert rank.run(calls.reduce(size, rank.rank, x, 0, ReduceOp.SUM)) == [
            ("reduce", (at, at, 3, FLOAT32, SUM, 0))
        ]


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_of_one_flat_array_and_of_a_list(size: int) -> None:
    for rank in each(size):
        x, flat = gpu(2), gpu(2 * size)
        call = calls.all_gather_single(size, rank.rank, flat, x, None, "all_gather_into_tensor")
        assert rank.run(call) == [("allGather", (x.address, flat.address, 2, FLOAT32))]
        parts = [gpu(2) for _ in range(size)]
        first, *copies = rank.run(calls.all_gather(size, rank.rank, parts, x))
        place = first[1][1]
        assert first == ("allGather", (x.address, place, 2, FLOAT32))
        assert copies == [
            ("memcpyAsync", (part.address, place + 8 * i, 8, 3))
            for i, part in enumerate(parts)
            if size > 1
        ]
        # A list of parts of one array needs no copies.
        rows = [flat[2 * i : 2 * i + 2] for i in range(size)]
        assert rank.run(calls.all_gather(size, rank.rank, rows, x)) == [
            ("allGather", (x.address, flat.address, 2, FLOAT32))
        ]


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_of_one_flat_array_and_of_a_list(size: int) -> None:
    for rank in each(size):
        out, flat = gpu(2), gpu(2 * size)
        call = calls.reduce_scatter_single(
            size, out, flat, ReduceOp.AVG, None, "reduce_scatter_tensor"
        )
        assert rank.run(call) == [("reduceScatter", (flat.address, out.address, 2, FLOAT32, AVG))]
        parts = [gpu(2) for _ in range(size)]
        *copies, last = rank.run(calls.reduce_scatter(size, rank.rank, out, parts, ReduceOp.MIN))
        place = last[1][0]
        assert last == ("reduceScatter", (place, out.address, 2, FLOAT32, MIN))
        assert copies == [
            ("memcpyAsync", (place + 8 * i, part.address, 8, 3))
            for i, part in enumerate(parts)
            if size > 1
        ]


def test_blocks_that_differ_in_size_travel_one_by_one() -> None:
    rank = Rank(1, 2)
    x, parts = gpu(3), [gpu(2), gpu(3)]
    assert rank.run(calls.all_gather(2, 1, parts, x)) == _grouped(
        [
            ("broadcast", (parts[0].address, parts[0].address, 2, FLOAT32, 0)),
            ("broadcast", (x.address, parts[1].address, 3, FLOAT32, 1)),
        ]
    )
    assert rank.run(calls.reduce_scatter(2, 1, x, parts, ReduceOp.MIN)) == _grouped(
        [
            ("reduce", (parts[0].address, parts[0].address, 2, FLOAT32, MIN, 0)),
            ("reduce", (parts[1].address, x.address, 3, FLOAT32, MIN, 1)),
        ]
    )


@pytest.mark.parametrize("size", SIZES)
def test_gather_and_scatter_are_messages_to_and_from_the_root(size: int) -> None:
    for rank in each(size):
        x, parts = gpu(2), [gpu(2) for _ in range(size)]
        others = [peer for peer in range(size) if peer]
        if rank.rank:
            gathered = rank.run(calls.gather(size, rank.rank, x, None, 0))
            assert gathered == [("send", (x.address, 2, FLOAT32, 0))]
            scattered = rank.run(calls.scatter(size, rank.rank, x, None, 0))
            assert scattered == [("recv", (x.address, 2, FLOAT32, 0))]
            continue
        gathered = rank.run(calls.gather(size, rank.rank, x, parts, 0))
        own = ("memcpyAsync", (parts[0].address, x.address, 8, 3))
        assert gathered == [
            own,
            *_grouped([("recv", (parts[peer].address, 2, FLOAT32, peer)) for peer in others]),
        ]
        scattered = rank.run(calls.scatter(size, rank.rank, x, parts, 0))
        assert scattered == [
            ("memcpyAsync", (x.address, parts[0].address, 8, 3)),
            *_grouped([("send", (parts[peer].address, 2, FLOAT32, peer)) for peer in others]),
        ]


@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_by_lists_and_by_rows(size: int) -> None:
    for rank in each(size):
        me = rank.rank
        sends, takes = [gpu(1) for _ in range(size)], [gpu(1) for _ in range(size)]
        made = rank.run(calls.all_to_all(size, me, takes, sends))
        messages = [
            step
            for peer in range(size)
            if peer != me
            for step in (
                ("send", (sends[peer].address, 1, FLOAT32, peer)),
                ("recv", (takes[peer].address, 1, FLOAT32, peer)),
            )
        ]
        own = ("memcpyAsync", (takes[me].address, sends[me].address, 4, 3))
        assert made == [own, *_grouped(messages)]


def test_all_to_all_of_rows_leaves_out_messages_of_nothing() -> None:
    rank = Rank(0, 3)
    source, target = gpu(3, 2), gpu(4, 2)
    call = calls.all_to_all_single(3, 0, target, source, [1, 3, 0], [1, 0, 2])
    assert rank.run(call) == [
        ("memcpyAsync", (target.address, source.address, 8, 3)),
        ("groupStart", ()),
        ("recv", (target.address + 8, 6, FLOAT32, 1)),
        ("send", (source.address + 8, 4, FLOAT32, 2)),
        ("groupEnd", ()),
    ]


def test_messages_and_the_barrier() -> None:
    rank = Rank(1, 2)
    [(method, args)] = rank.run(calls.barrier())
    assert (method, args[2:]) == ("allReduce", (1, UINT8, SUM))
    x = gpu(5)
    assert rank.run(calls.send(2, x, 0, 9), 101) == [("send", (x.address, 5, FLOAT32, 0))]
    assert rank.run(calls.recv(2, x, 0, 9), 101) == [("recv", (x.address, 5, FLOAT32, 0))]
    with pytest.raises(UsageError, match="from a named rank"):
        rank.run(calls.recv(2, x, -1, 0))


@pytest.mark.parametrize(("rank", "peer", "theirs"), [(3, 1, 0), (3, 5, 1)])
def test_each_peer_has_a_communicator_of_two(rank: int, peer: int, theirs: int) -> None:
    one, x = Rank(rank, 8), gpu(5)
    assert one.run(calls.send(8, x, peer, 0)) == [("send", (x.address, 5, FLOAT32, theirs))]
    other = 7
    assert one.run(calls.recv(8, x, other, 0), 101) == [("recv", (x.address, 5, FLOAT32, 1))]
    assert one.run(calls.recv(8, x, peer, 0)) == [("recv", (x.address, 5, FLOAT32, theirs))]


def test_with_a_device_messages_take_the_communicator_of_the_group() -> None:
    one, x = Rank(3, 8), gpu(5)
    one.engine.bind(0)
    assert one.run(calls.send(8, x, 6, 0)) == [("send", (x.address, 5, FLOAT32, 6))]
    assert one.run(calls.all_reduce(x, ReduceOp.SUM))


def test_premul_sum_is_an_op_with_the_factor_of_this_rank() -> None:
    rank = Rank(0, 2)
    x = gpu(3, dtype=np.complex64)
    made = rank.run(calls.all_reduce(x, ReduceOp.SUM))
    assert made == [("allReduce", (x.address, x.address, 6, FLOAT32, SUM))]  # pairs
    made = rank.run(calls.all_reduce(x, dist.make_premul_sum(2.5)))
    assert made == [
        ("make_premul_sum", (np.float32(2.5).tobytes(), FLOAT32)),
        ("allReduce", (x.address, x.address, 6, FLOAT32, 77)),
        ("destroy_op", (77,)),
    ]


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        (np.int8, 0), (np.uint8, 1), (np.int32, 2), (np.uint32, 3), (np.int64, 4), (np.uint64, 5),
        (np.float16, 6), (np.float32, 7), (np.float64, 8), (ml_dtypes.bfloat16, 9),
        (ml_dtypes.float8_e4m3fn, 10), (ml_dtypes.float8_e5m2, 11), (np.bool_, 1),
    ],
)  # fmt: skip
def test_dtypes_that_nccl_has(dtype: Any, code: int) -> None:
    rank = Rank(0, 2)
    x = gpu(3, dtype=dtype)
    expected = MAX if dtype is np.bool_ else SUM
    [(_, args)] = rank.run(calls.all_reduce(x, ReduceOp.SUM))
    assert args[2:] == (3, code, expected)


def test_what_nccl_cannot_compute_it_can_move() -> None:
    rank = Rank(0, 2)
    x = gpu(3, dtype=np.int16)
    with pytest.raises(UsageError, match="NCCL cannot reduce int16"):
        rank.run(calls.all_reduce(x, ReduceOp.SUM))
    with pytest.raises(UsageError, match="no reduce op BXOR"):
        rank.run(calls.all_reduce(gpu(3, dtype=np.int32), ReduceOp.BXOR))
    assert rank.run(calls.broadcast(2, x, 0)) == [
        ("broadcast", (x.address, x.address, 6, UINT8, 0))
    ]
    old = Rank(0, 2, version=22304)
    with pytest.raises(UsageError, match=r"NCCL 2\.24 has it, this is 2\.23\.4"):
        old.run(calls.all_reduce(gpu(3, dtype=ml_dtypes.float8_e5m2), ReduceOp.SUM))


def test_a_gpu_that_is_too_old_to_reduce_float8_is_told_before_nccl_is_called() -> None:
    rank = Rank(0, 2)
    rank.machine.capability = "80"
    x = gpu(3, dtype=ml_dtypes.float8_e4m3fn)
    with pytest.raises(UsageError, match=r"on cuda:0, of compute capability 8\.0; it needs 9\.0"):
        rank.run(calls.all_reduce(x, ReduceOp.SUM))
    assert rank.run(calls.broadcast(2, x, 0)) == [("broadcast", (x.address, x.address, 3, 10, 0))]


def test_an_array_with_gaps_goes_through_a_copy_and_comes_back() -> None:
    rank = Rank(0, 2)
    x = StandInArray(np.arange(6, dtype=np.float32)[::2])
    [(_, (source, target, count, _, _))] = rank.run(calls.all_reduce(x, ReduceOp.SUM))
    assert source == target != x.address
    assert count == 3
    with pytest.raises(UsageError, match="share one place"):
        rank.run(calls.broadcast(2, StandInArray(np.broadcast_to(np.float32(1), 3)), 1))


def test_a_block_is_one_group_of_calls() -> None:
    rank = Rank(0, 2)
    x, y = gpu(1), gpu(2)
    rank.engine.begin_block()
    first = rank.engine.submit(calls.send(2, x, 1, 0))
    second = rank.engine.submit(calls.recv(2, y, 1, 0))
    assert not first.done()
    rank.engine.end_block()
    assert first.done()
    assert second.done()
    assert rank.machine.methods(0) == ["groupStart", "send", "recv", "groupEnd"]
    rank.engine.begin_block()
    rank.engine.end_block()
    assert len(rank.machine.calls) == 4


def test_streams_are_ordered_by_events_and_the_host_goes_on() -> None:
    rank = Rank(0, 2)
    cuda = rank.engine.library.cupy.cuda
    rank.machine.hangs = True
    x = gpu(1)
    pending = rank.engine.submit(calls.all_reduce(x, ReduceOp.SUM))
    here = cuda.get_current_stream()
    assert here.waits == []
    pending.wait(2**63 - 1)
    [ended] = here.waits
    assert ended.stream.ptr == 100
    [ready] = ended.stream.waits
    assert ready.stream is here
    assert not pending.done()
    with pytest.raises(dist.OpTimeout, match="it continues"):
        pending.wait(FREE_CLOCK.now_ns())
    rank.machine.hangs = False
    assert pending.done()
    rank.engine.close()
    assert rank.machine.destroyed == {0}


def _grouped(steps: list[Any]) -> list[Any]:
    return steps if len(steps) < 2 else [("groupStart", ()), *steps, ("groupEnd", ())]
