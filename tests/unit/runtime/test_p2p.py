"""Point to point over the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import OpTimeout, UsageError
from tests.support.store_ranks import REFERENCE, run_store_ranks

RunRanks = Callable[..., list[Any]]


@pytest.fixture(params=[REFERENCE, "gloo"])
def run_ranks(request: pytest.FixtureRequest) -> RunRanks:
    """Ranks as threads, over the reference engine and over the CPU engine."""
    return partial(run_store_ranks, backend=request.param)


def test_send_and_recv_match_by_tag(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[int]:
        if rank == 0:
            work = dist.isend(np.array([1]), 1, tag=7)  # the other side takes tag 8 first
            dist.send(np.array([2]), 1, tag=8)
            assert work is not None
            work.wait()
            return []
        first, second = np.zeros(1, int), np.zeros(1, int)
        assert dist.recv(first, 0, tag=8) == 0
        assert dist.recv(second, group_src=0, tag=7) == 0
        return [int(first[0]), int(second[0])]

    assert run_ranks(run, 2)[1] == [2, 1]


def test_recv_from_any_rank_returns_the_senders_global_rank(run_ranks: RunRanks) -> None:
    def run(rank: int) -> set[tuple[int, int]]:
        group = dist.new_group([1, 2, 3])
        got = set()
        if rank == 1:
            for _ in range(2):
                x = np.zeros(1, int)
                got.add((dist.recv(x, group=group), int(x[0])))
            x = np.zeros(1, int)
            work = dist.irecv(x, group=group, tag=1)
            assert work is not None
            work.wait()
            assert work.source_rank() == 2  # the group rank of global rank 3
        elif rank in (2, 3):
            dist.send(np.array([rank * 11]), 1, group=group)
            if rank == 3:
                dist.send(np.array([5]), group_dst=0, group=group, tag=1)
        return got

    assert run_ranks(run, 4)[1] == {(2, 22), (3, 33)}


def test_a_rank_can_send_to_itself(run_ranks: RunRanks) -> None:
    def run(rank: int) -> float:
        work = dist.isend(np.array([4.0]), rank)
        assert work is not None
        x = np.zeros(1)
        assert dist.recv(x, rank) == rank
        work.wait()
        return float(x[0])

    assert run_ranks(run, 2) == [4.0, 4.0]


def test_a_batch_exchanges_in_a_ring_in_any_order(run_ranks: RunRanks) -> None:
    def run(rank: int) -> int:
        x = np.zeros(1, int)
        ops = [
            dist.P2POp(dist.isend, np.array([rank]), (rank + 1) % 3),
            dist.P2POp(dist.irecv, x, (rank - 1) % 3),
        ]
        works = dist.batch_isend_irecv(ops if rank else ops[::-1])
        assert len(works) == 2
        for work in works:
            work.wait()
        return int(x[0])

    assert run_ranks(run, 3) == [2, 0, 1]


def test_a_recv_without_a_message_names_its_source(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        group = dist.group.WORLD
        assert group is not None
        if rank == 0:
            group.set_timeout(timedelta(seconds=0.05))
            with pytest.raises(OpTimeout) as caught:
                dist.recv(np.zeros(1), 1, tag=3)
            assert caught.value.missing == [1]
            group.get_group_store().set("over", "1")
        group.get_group_store().wait(["over"])

    run_ranks(run, 2)


def test_wrong_arguments_are_told_before_anything_is_sent(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        x = np.zeros(1)
        with pytest.raises(UsageError, match="give dst or group_dst"):
            dist.send(x)
        with pytest.raises(UsageError, match="not both"):
            dist.send(x, 0, group_dst=0)
        with pytest.raises(UsageError, match="=9 is not in group"):
            dist.send(x, 9)
        with pytest.raises(UsageError, match="group_src=2"):
            dist.recv(x, group_src=2)
        with pytest.raises(UsageError, match="tag"):
            dist.send(x, 0, tag=-1)
        with pytest.raises(UsageError, match="isend or irecv"):
            dist.P2POp(dist.send, x, 0)
        with pytest.raises(UsageError, match="empty"):
            dist.batch_isend_irecv([])
        frozen = np.zeros(1)
        frozen.flags.writeable = False
        with pytest.raises(UsageError, match="read-only"):
            dist.recv(frozen, 0)
        dist.barrier()  # the group is as it was

    run_ranks(run, 2)
