"""What every group does, and the results of the host, over calls of NCCL that a stand-in carries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.backends.nccl import library
from distdbg.testing.conformance.group import CHECKS, Api, run_checks
from tests.unit.nccl import computing
from tests.unit.nccl.computing import ComputingMachine
from tests.unit.nccl.stand_in import StandInArray

LIMIT_S = 120
#: What NCCL does not have; see docs/explanation/gpu.md.
NOT_NCCLS = (
    "all_reduce_combines_bits",
    "messages_keep_their_tags_and_order",
    "rank_0_receives_from_whoever_sends",
)


def on_device(values: Any, dtype: Any) -> StandInArray:
    return StandInArray(np.array(values, np.dtype(dtype)), dist.get_rank())


def begin(store: dist.Store, *, is_bound: bool) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group(
        "nccl", store=store, rank=rank, world_size=size, device_id=rank if is_bound else None
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> ComputingMachine:
    machine = ComputingMachine()
    begin = StandInArray.__init__

    def note(array: StandInArray, *args: Any) -> None:
        begin(array, *args)
        computing.allocations.add(array.host)

    monkeypatch.setattr(computing, "allocations", computing.Allocations())
    monkeypatch.setattr(StandInArray, "__init__", note)
    monkeypatch.setattr(library, "_library", machine.library())
    return machine


@pytest.mark.parametrize(("size", "is_bound"), [(1, True), (2, False), (3, True), (4, True)])
def test_all_checks_pass(machine: ComputingMachine, size: int, is_bound: bool) -> None:
    store = dist.HashStore()

    def program() -> dict[str, str]:
        begin(store, is_bound=is_bound)
        api = Api(dist, array=on_device, values=lambda x: x.host.tolist())
        failures = run_checks(api, without=NOT_NCCLS)
        dist.destroy_process_group()
        return failures

    assert dist.run_threads(program, size, timeout_s=LIMIT_S) == [{}] * size
    assert set(NOT_NCCLS) <= set(CHECKS)
    assert machine.destroyed == set(range(size))


FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
REDUCED = (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, *FLOATS)
#: What NCCL adds up, and with which ops the host is compared.
REDUCTIONS = [
    *((dtype, op) for dtype in REDUCED for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG")),
    *((dtype, "PREMUL") for dtype in FLOATS),
    *((dtype, op) for dtype in (np.complex64, np.complex128) for op in ("SUM", "AVG", "PREMUL")),
    *((np.bool_, op) for op in ("SUM", "PRODUCT", "MIN", "MAX")),
    *((dtype, "SUM") for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)),
]
MOVED = (np.int16, np.uint16, np.complex64, np.bool_, ml_dtypes.float8_e4m3fnuz, ml_dtypes.bfloat16)

Make = Callable[[Any], Any]


def values_of(rank: int, count: int, dtype: Any) -> Any:
    return (np.arange(1, count + 1) % 3 + rank % 2 + 1).astype(dtype)


def reductions(make: Make, dtype: Any, name: str) -> list[Any]:
    """The outputs of each reduction, in the order of the calls."""
    rank, size = dist.get_rank(), dist.get_world_size()
    op = dist.make_premul_sum(2.0) if name == "PREMUL" else getattr(dist.ReduceOp, name)

    def mine(count: int, more: int = 0) -> Any:
        return make(values_of(rank + more, count, dtype))

    x, y, out, wide = mine(5), mine(6), mine(2), mine(12)[::2]
    parts, unlike = (
        [mine(2, peer) for peer in range(size)],
        [mine(peer + 1) for peer in range(size)],
    )
    own = mine(rank + 1)
    dist.all_reduce(x, op)
    dist.reduce(y, size - 1, op)
    dist.reduce_scatter_tensor(out, mine(2 * size), op)
    listed = mine(2)
    dist.reduce_scatter(listed, parts, op)
    dist.reduce_scatter(own, unlike, op)
    dist.all_reduce(wide, op)
    outputs = [x, out, listed, own, wide]
    return [*outputs, y] if rank == size - 1 else outputs


def moves(make: Make, dtype: Any) -> list[Any]:
    """The outputs of each op that only moves."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def mine(count: int) -> Any:
        return make(values_of(rank, count, dtype))

    def new(count: int) -> Any:
        return make(np.zeros(count, dtype))

    x, flat, parts = mine(3), new(3 * size), [new(3) for _ in range(size)]
    dist.broadcast(x, size - 1)
    dist.all_gather_into_tensor(flat, mine(3))
    dist.all_gather(parts, mine(3))
    unlike = [new(peer + 1) for peer in range(size)]
    dist.all_gather(unlike, mine(rank + 1))
    gathered = [new(2) for _ in range(size)] if rank == 0 else None
    dist.gather(mine(2), gathered, 0)
    one = new(2)
    dist.scatter(one, [mine(2) for _ in range(size)] if rank == 1 else None, 1)
    taken, sent = new(size * (rank + 1)), mine(sum(range(1, size + 1)))
    dist.all_to_all_single(taken, sent, [rank + 1] * size, [peer + 1 for peer in range(size)])
    swapped = [new(2) for _ in range(size)]
    dist.all_to_all(swapped, [mine(2) for _ in range(size)])
    after, before = (rank + 1) % size, (rank - 1) % size
    ring = new(4)
    ops = [dist.P2POp(dist.isend, mine(4), after), dist.P2POp(dist.irecv, ring, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    gaps = new(8)[::2]
    dist.broadcast(gaps if rank else mine(8)[::2], 0)
    return [
        x,
        flat,
        *parts,
        *unlike,
        *(gathered or ()),
        one,
        taken,
        *swapped,
        ring,
        *([gaps] if rank else []),
    ]


def compare(run: Callable[..., list[Any]], *what: Any) -> None:
    """The same on the device and on the host, bit for bit: the numbers are small."""
    rank = dist.get_rank()
    on_host = run(lambda values: values, *what)
    found = [x.host for x in run(lambda values: StandInArray(values, rank), *what)]
    assert len(found) == len(on_host)
    for number, (here, there) in enumerate(zip(found, on_host, strict=True)):
        assert np.array_equal(here, there), (what, number, here, there)


@pytest.mark.parametrize("size", [2, 3])
def test_results_are_those_of_the_host(machine: ComputingMachine, size: int) -> None:
    store = dist.HashStore()

    def program() -> None:
        begin(store, is_bound=True)
        for dtype, op in REDUCTIONS:
            compare(reductions, dtype, op)
        for dtype in MOVED:
            compare(moves, dtype)
        dist.destroy_process_group()

    dist.run_threads(program, size, timeout_s=LIMIT_S)
