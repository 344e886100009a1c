"""All ops on ranks that are spread over hosts in each way, beside the reference engine and one host.

The ranks are threads that say they are processes of several hosts: shared memory within these, TCP between.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self
from tests.support.store_ranks import REFERENCE, run_store_ranks
from tests.unit.runtime.test_monitored_barrier import look_when_all_have_come

SIZE = 4
#: The ranks of each host. The last are for `make stress`.
TWO_BY_TWO = ((0, 1), (2, 3))
LAYOUTS = [TWO_BY_TWO, ((0, 2), (1, 3)), ((0,), (1,), (2,), (3,))]
if os.environ.get("STRESS_TRANSPORTS"):
    LAYOUTS += [((0, 1, 2), (3,)), ((0,), (1, 2, 3)), ((0, 3), (1,), (2,))]
#: Of a host, of one and a part of another, one of each host, and in another order.
PARTS = ((0, 1), (0, 1, 2), (1, 3), (3, 0))
#: Elements: none, in one slot, in several pieces.
COUNTS = (0, 1000, 50_000)

Result = list[Any]
#: The package has a function of that name.
JOIN = import_module("distdbg.runtime.rendezvous.join")


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Sequence[int]]], None]:
    """Call it with the ranks of each host, before the ranks start."""

    def lay_out(hosts: Sequence[Sequence[int]]) -> None:
        host_of = {f"rank {rank}": number for number, ranks in enumerate(hosts) for rank in ranks}

        def identify() -> ProcessIdentity:
            number = host_of[threading.current_thread().name]
            return replace(identify_self(), host=f"node{number}", pid_namespace=number + 1)

        monkeypatch.setattr(JOIN, "identify_self", identify)

    return lay_out


def collectives(group: dist.ProcessGroup, count: int) -> Result:
    """Each op once; what they have written on this rank."""
    me, size, world_rank = group.rank(), group.size(), dist.get_rank()
    draw = np.random.default_rng(count)
    arrays = [draw.integers(0, 50, count) for _ in range(size)]
    mine = arrays[me]
    found: Result = []

    def zeros(blocks: int = 1) -> np.ndarray:
        return np.zeros(count * blocks, np.int64)

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.BXOR):
        found.append(x := mine.copy())
        dist.all_reduce(x, op, group)
    found.append(x := mine.astype(np.float64))
    dist.all_reduce(x, dist.ReduceOp.AVG, group)
    for root in range(size):
        found.append(x := mine.copy())
        dist.broadcast(x, group=group, group_src=root)
        found.append(x := mine.copy())
        dist.reduce(x, op=dist.ReduceOp.MIN, group=group, group_dst=root)
        if me != root:
            found.pop()  # of no meaning there
        blocks = [zeros() for _ in range(size)] if me == root else None
        dist.gather(mine, blocks, group=group, group_dst=root)
        found.append(blocks)
        found.append(x := zeros())
        dist.scatter(x, arrays if me == root else None, group=group, group_src=root)
    found.append(blocks := [zeros() for _ in range(size)])
    dist.all_gather(blocks, mine, group)
    found.append(x := zeros(size))
    dist.all_gather_into_tensor(x, mine, group)
    found.append(x := zeros())
    dist.reduce_scatter(x, [mine + i for i in range(size)], group=group)
    found.append(x := zeros())
    dist.reduce_scatter_tensor(x, np.concatenate([mine * i for i in range(size)]), group=group)
    found.append(blocks := [zeros() for _ in range(size)])
    dist.all_to_all(blocks, [mine + i for i in range(size)], group)
    splits = [count // (peer + 2) for peer in range(size)]
    found.append(x := np.zeros(splits[me] * size, np.int64))
    source = np.full(sum(splits), world_rank)
    dist.all_to_all_single(x, source, [splits[me]] * size, splits, group)
    found.append(blocks := [mine.copy(), mine[: count // 2].copy()])
    dist.all_reduce_coalesced(blocks, group=group)
    works = [dist.all_reduce(mine.copy(), group=group, async_op=True) for _ in range(3)]
    for work in works:
        assert work is not None
        work.wait()
    dist.barrier(group)
    return found


def messages(group: dist.ProcessGroup, count: int) -> Result:
    """Round the ring in three ways."""
    me, size = group.rank(), group.size()
    mine = np.full(count, dist.get_rank())
    found = [np.zeros(count, np.int64) for _ in range(3)]
    after, before = (me + 1) % size, (me - 1) % size
    sent = dist.isend(mine, group=group, group_dst=after, tag=7)
    dist.recv(found[0], group=group, group_src=before, tag=7)
    assert sent is not None
    sent.wait()
    ops = [
        dist.P2POp(dist.isend, mine + 1, group=group, group_peer=before),
        dist.P2POp(dist.irecv, found[1], group=group, group_peer=after),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if me == 0:
        for peer in range(1, size):
            dist.send(mine + peer, group=group, group_dst=peer)
    else:
        dist.recv(found[2], group=group)
    return found


def objects(group: dist.ProcessGroup) -> Result:
    """Objects of unlike sizes."""
    me, size = group.rank(), group.size()
    mine = {"rank": dist.get_rank(), "rest": "x" * 1000 * me}
    everybody: list[Any] = [None] * size
    dist.all_gather_object(everybody, mine, group)
    gathered = [None] * size if me == size - 1 else None
    dist.gather_object(mine, gathered, group=group, group_dst=size - 1)
    reported: list[Any] = [mine, me] if me == 1 else [None, None]
    dist.broadcast_object_list(reported, group=group, group_src=1)
    dealt: list[Any] = [None]
    hand = [[mine, peer] for peer in range(size)] if me == 0 else None
    dist.scatter_object_list(dealt, hand, group=group, group_src=0)
    passed: list[Any] = [mine, (1, 2)] if me == 0 else [None, None]
    if me == 0:
        dist.send_object_list(passed, group=group, group_dst=size - 1)
    elif me == size - 1:
        dist.recv_object_list(passed, group=group, group_src=0)
    return [everybody, gathered, reported, dealt, passed]


def everything(rank: int) -> Result:
    world = dist.group.WORLD
    assert world is not None
    parts = [dist.new_group(list(ranks)) for ranks in PARTS]
    found: Result = []
    for group in [world, *(p for p, ranks in zip(parts, PARTS, strict=True) if rank in ranks)]:
        for count in COUNTS if group is world else COUNTS[1:2]:
            found += collectives(group, count)
        found += messages(group, 3) + messages(group, 100_000) + objects(group)
        dist.monitored_barrier(group, timedelta(seconds=60))
    return found


@pytest.fixture(scope="module")
def expected() -> list[Result]:
    return run_store_ranks(everything, SIZE, backend=REFERENCE, timeout_s=60)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", LAYOUTS)
def test_all_ops_in_all_groups_are_as_the_reference_has_them(
    spread: Callable[..., None], expected: list[Result], hosts: Sequence[Sequence[int]]
) -> None:
    spread(hosts)
    np.testing.assert_equal(
        run_store_ranks(everything, SIZE, backend="gloo", timeout_s=60), expected
    )


def call_wrongly(rank: int) -> list[str]:
    """What this rank is told each time; nothing else goes wrong in between."""
    x = np.ones(4 + (rank == 3))
    splits = [1 + (rank == 2), 1, 1, 1]
    sent = np.zeros(sum(splits))

    def fail(op: Callable[[], object]) -> str:
        with pytest.raises(dist.DistError) as caught:
            op()
        total = np.ones(1000)
        dist.all_reduce(total)
        assert (total == SIZE).all()
        return str(caught.value)

    return [
        fail(lambda: dist.all_reduce(x)),
        fail(lambda: dist.barrier() if rank == 1 else dist.reduce(np.ones(4), 0)),
        fail(lambda: dist.broadcast(x, src=rank // 2)),
        fail(lambda: dist.all_to_all_single(np.zeros(SIZE), sent, None, splits)),
        fail(lambda: dist.new_group(range(3 + rank // 2))),
        fail(lambda: dist.broadcast_object_list([None] * (1 + rank % 2))),
    ]


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_what_differs_is_told_as_on_one_host(
    spread: Callable[..., None], hosts: Sequence[Sequence[int]]
) -> None:
    alone = run_store_ranks(call_wrongly, SIZE, backend="gloo", timeout_s=60)
    spread(hosts)
    assert run_store_ranks(call_wrongly, SIZE, backend="gloo", timeout_s=60) == alone


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_monitored_barrier_names_the_host_of_a_rank_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, spread: Callable[..., None], hosts: Sequence[Sequence[int]]
) -> None:
    spread(hosts)
    look_when_all_have_come(monkeypatch, [0, 1, 2])
    reported = threading.Barrier(SIZE)

    def run(rank: int) -> str:
        if rank == 3:
            reported.wait(60)
        with pytest.raises(dist.OpTimeout) as caught:
            dist.monitored_barrier(timeout=timedelta(seconds=0.3))
        if rank != 3:
            reported.wait(60)
        dist.barrier()
        assert caught.value.missing == [3]
        return caught.value.details[0]

    number = next(number for number, ranks in enumerate(hosts) if 3 in ranks)
    for line in run_store_ranks(run, SIZE, backend="gloo", timeout_s=60):
        assert line == f"rank 3 on host node{number}: has called no op yet"
