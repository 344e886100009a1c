"""ProcessGroup's methods in both of torch's forms: option objects and bare values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import OpTimeout, UsageError
from distdbg.runtime.store import HashStore
from tests.support.store_ranks import REFERENCE, run_store_ranks

RunRanks = Callable[..., list[Any]]


@pytest.fixture(params=[REFERENCE, "gloo"])
def run_ranks(request: pytest.FixtureRequest) -> RunRanks:
    """Ranks as threads, over the reference engine and over the CPU engine."""
    return partial(run_store_ranks, backend=request.param)


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def test_reductions_in_both_forms(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[float]:
        group = world()
        xs = [np.array([float(rank + 1)]) for _ in range(6)]
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group.allreduce([xs[0]], options).wait()
        group.allreduce(xs[1], dist.ReduceOp.MIN, timedelta(seconds=60)).wait()
        group.allreduce([xs[2]]).wait()
        group.allreduce_coalesced([xs[3]]).wait()
        root = dist.ReduceOptions()
        root.rootRank = 1
        group.reduce([xs[4]], root).wait()
        group.reduce(xs[5], 0, dist.ReduceOp.PRODUCT).wait()
        return [float(x[0]) for x in xs]

    first, second = run_ranks(run, 2)
    assert first == [2, 1, 3, 3, 1, 2]
    assert second == [2, 1, 3, 3, 3, 2]


def test_blocks_in_both_forms(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        group = world()
        mine = np.array([float(rank)])
        for nested in (True, False):
            out = [np.zeros(1), np.zeros(1)]
            if nested:
                group.allgather([out], [mine]).wait()
            else:
                group.allgather(out, mine, timeout=timedelta(seconds=60)).wait()
            assert [x[0] for x in out] == [0, 1]
        options = dist.GatherOptions()
        options.rootRank = 1
        out = [np.zeros(1), np.zeros(1)]
        group.gather([out] if rank == 1 else [], [mine], options).wait()
        assert [x[0] for x in out] == ([0, 1] if rank == 1 else [0, 0])
        group.gather(out if rank == 0 else [], mine, 0).wait()
        assert [x[0] for x in out] == [0, 1]
        got = np.zeros(1)
        parts = [np.array([5.0]), np.array([6.0])]
        group.scatter([got], [parts] if rank == 0 else []).wait()
        assert got[0] == 5 + rank
        group.scatter(got, parts if rank == 1 else [], 1).wait()
        group.reduce_scatter([got], [parts]).wait()
        assert got[0] == 10 + 2 * rank
        group.reduce_scatter(got, parts, dist.ReduceOp.MAX).wait()
        assert got[0] == 5 + rank
        swapped = [np.zeros(1), np.zeros(1)]
        group.alltoall(swapped, [mine + 10, mine + 20]).wait()
        assert [x[0] for x in swapped] == [10 + 10 * rank, 11 + 10 * rank]
        root = dist.BroadcastOptions()
        root.rootRank = 1
        group.broadcast([mine], root).wait()
        assert mine[0] == 1
        group.broadcast(mine, 0).wait()

    run_ranks(run, 2)


def test_single_and_coalesced_forms(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        group = world()
        mine = np.array([float(rank)])
        flats = [np.zeros(2) for _ in range(4)]
        group.all_gather_single(flats[0], mine).wait()
        group._allgather_base(flats[1], mine).wait()
        group.all_gather_single_coalesced([flats[2]], [mine]).wait()
        group.allgather_into_tensor_coalesced([flats[3]], [mine]).wait()
        for flat in flats:
            assert flat.tolist() == [0, 1]
        lists = [[np.zeros(1), np.zeros(2)] for _ in range(2)]  # by rank, then by input
        group.allgather_coalesced(lists, [mine, np.full(2, 5.0 + rank)]).wait()
        assert [[x.tolist() for x in row] for row in lists] == [[[0], [5, 5]], [[1], [6, 6]]]
        pair = np.array([1.0, 2.0])
        outs = [np.zeros(1) for _ in range(4)]
        group.reduce_scatter_single(outs[0], pair).wait()
        group._reduce_scatter_base(outs[1], pair).wait()
        group.reduce_scatter_single_coalesced([outs[2]], [pair]).wait()
        group.reduce_scatter_tensor_coalesced([outs[3]], [pair]).wait()
        assert [out[0] for out in outs] == [2 + 2 * rank] * 4
        out = np.zeros(2)
        group.alltoall_base(out, mine + np.array([10.0, 20.0]), [], []).wait()
        assert out.tolist() == [10 + 10 * rank, 11 + 10 * rank]
        with pytest.raises(UsageError, match="2 outputs and 1 inputs"):
            group.all_gather_single_coalesced([out, out], [mine])
        with pytest.raises(UsageError, match="list of one array"):
            group.allreduce([mine, mine])

    run_ranks(run, 2)


def test_messages_and_barriers(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        group = world()
        x = np.array([float(rank)])
        if rank == 0:
            group.send([x], 1, 4).wait()
            group.send([x], 1, 5).wait()
        else:
            group.recv([x], 0, 4).wait()
            work = group.recv_anysource([x], 5)
            work.wait()
            assert work.source_rank() == 0
            assert x[0] == 0
        group.barrier().wait()
        group.barrier(dist.BarrierOptions()).wait()
        group.barrier(timedelta(seconds=60)).wait()
        group.monitored_barrier(timedelta(seconds=60))

    run_ranks(run, 2)


def test_a_group_knows_itself(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        group = world()
        assert (group.rank(), group.size(), group.name()) == (rank, 2, dist.get_backend())
        assert dist.ProcessGroup.unbox(group.boxed()) is group
        with pytest.raises(UsageError, match="unbox"):
            dist.ProcessGroup.unbox(3)
        group.get_group_store().set(f"key{rank}", "value")
        dist.barrier()
        assert group.get_group_store().get(f"key{1 - rank}") == b"value"
        assert "rank" in repr(group)
        with pytest.raises(UsageError, match="set_timeout"):
            group.set_timeout(timedelta(seconds=-1))

    run_ranks(run, 2)


def test_an_ops_own_timeout_counts(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        if rank == 0:
            with pytest.raises(OpTimeout) as caught:
                dist.barrier(timeout=timedelta(seconds=0.05))
            assert caught.value.missing == [1]
            world().get_group_store().set("over", "1")
        world().get_group_store().wait(["over"])  # a rank that leaves would be lost, not late

    run_ranks(run, 2)


def test_abort_ends_ops_in_flight_on_all_ranks(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        store = world().get_group_store()
        if rank == 1:
            store.wait(["started"])
            world().abort()
        else:
            work = dist.all_reduce(np.zeros(1), async_op=True)
            assert work is not None
            store.set("started", "1")
            with pytest.raises(dist.CollectiveError) as caught:
                work.wait()
            assert "called abort()" in str(caught.value)

    run_ranks(run, 2)


def test_split_and_merge(run_ranks: RunRanks) -> None:
    meeting = HashStore()

    def run(rank: int) -> tuple[int, int]:
        pair = [0, 1] if rank < 2 else [2, 3]
        part = world().split_group(pair, group_name=f"pair{rank // 2}", group_desc="half")
        assert part.group_name == f"pair{rank // 2}"
        assert part.group_desc == "half"
        merged = part.merge_remote_group(meeting, 4, group_name="again")
        x = np.array([1])
        dist.all_reduce(x, group=merged)
        assert merged.rank() % 2 == rank % 2  # those of one group stay neighbours, in order
        return merged.rank(), int(x[0])

    results = run_ranks(run, 4)
    assert sorted(results) == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_errors_of_an_array_begin_with_the_function_and_name_the_group(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        x = np.zeros(2, complex)
        with pytest.raises(UsageError, match=r"^all_reduce: tensor is None"):
            dist.all_reduce(None)
        with pytest.raises(UsageError, match=r"^all_reduce: reduce op MAX is not defined"):
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
        with pytest.raises(UsageError, match=r"^reduce_scatter_tensor: a reduce op is a ReduceOp"):
            dist.reduce_scatter_tensor(x[:1], x, op="sum")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^broadcast: src=9 is not in group 'world'"):
            dist.broadcast(x, src=9)
        with pytest.raises(UsageError, match=r"^new_group: ranks must be a list"):
            dist.new_group(0)  # type: ignore[arg-type]

    run_ranks(run, 2)
