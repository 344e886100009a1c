"""Groups in real processes: init after destroy, sub-groups, background progress, shared use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.process import destroy

Ranks = Callable[..., list[Any]]


def init_ten_times() -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    totals = []
    held: list[int] = []
    for _ in range(10):
        dist.init_process_group()
        pair = dist.new_group([0, 1])
        x = np.array([10**rank])
        dist.all_reduce(x, group=pair)
        work = dist.all_reduce(x, group=pair, async_op=True)
        assert work is not None
        work.get_future().wait()
        totals.append(int(x[0]))
        objects: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(objects, rank)
        dist.monitored_barrier()  # rank 0 serves the store and is done with this first
        dist.destroy_process_group()
        held.append(len(os.listdir("/proc/self/fd")))
    return {"totals": totals, "fds": held[-1] - held[0], "threads": threading.active_count()}


def test_init_after_destroy_ten_times_leaves_nothing(ranks: Ranks) -> None:
    for result in ranks(init_ten_times, 2):
        assert result == {"totals": [22] * 10, "fds": 0, "threads": 1}


def groups_and_messages() -> list[Any]:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, _ = dist.new_subgroups(2)
    neighbours = [rank // 2 * 2, rank // 2 * 2 + 1]
    local = dist.new_group(neighbours, use_local_synchronization=True)
    assert mine is not None
    results = []
    for group in (mine, local, None):
        x = np.array([10**rank])
        dist.all_reduce(x, group=group)
        results.append(int(x[0]))
    token = np.array([rank])
    got = np.zeros(1, int)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, token, (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    results.append(int(got[0]))
    dist.destroy_process_group()
    return results


def test_groups_do_not_mix(ranks: Ranks) -> None:
    low, high = [11, 11, 1111], [1100, 1100, 1111]
    assert ranks(groups_and_messages, 4) == [[*low, 3], [*low, 0], [*high, 1], [*high, 2]]


def groups_on_threads() -> list[int]:
    dist.init_process_group()
    rank = dist.get_rank()
    groups = [dist.new_group() for _ in range(4)]
    results = [0] * 4

    def use(index: int) -> None:
        x = np.array([rank + index])
        for _ in range(50):
            x[0] = rank + index
            dist.all_reduce(x, group=groups[index])
        results[index] = int(x[0])

    threads = [threading.Thread(target=use, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dist.destroy_process_group()
    return results


def test_several_threads_use_several_groups_at_once(ranks: Ranks) -> None:
    assert ranks(groups_on_threads, 2) == [[1, 3, 5, 7]] * 2


def one_dies_before_leaving() -> str:
    dist.init_process_group()
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(3)
    with pytest.raises(dist.PeerLost) as caught:
        dist.barrier()
    started = time.monotonic()
    with patch.object(destroy, "LINGER_S", 60.0):
        dist.destroy_process_group()  # serves the store, and must not wait for the dead
    assert time.monotonic() - started < 30
    return f"{type(caught.value).__name__} {caught.value.peer}"


def test_destroy_does_not_wait_for_a_dead_rank(ranks: Ranks) -> None:
    results = ranks(one_dies_before_leaving, 2, expect_exit={1: 3})
    assert results[0] == "PeerLost 1"


def the_others_go_on() -> list[int]:
    dist.init_process_group()
    rank = dist.get_rank()
    dist.barrier()
    if rank == 1:
        os._exit(3)
    with pytest.raises(dist.PeerLost):
        dist.all_reduce(np.ones(1))
    dist.shrink_group([1], shrink_flags=1)
    x = np.array([rank])
    dist.all_reduce(x)
    seen = [dist.get_rank(), dist.get_world_size(), int(x[0])]
    dist.destroy_process_group()
    return seen


def test_after_a_death_the_others_shrink_the_group_and_go_on(ranks: Ranks) -> None:
    results = ranks(the_others_go_on, 3, expect_exit={1: 3})
    assert results == [[0, 2, 2], None, [1, 2, 2]]
