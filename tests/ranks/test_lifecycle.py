"""Groups come and go without a trace; ops progress while nobody waits; many ranks on few cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError


def holdings() -> tuple[int, int, int]:
    with open("/proc/self/maps") as file:
        segments = sum("memfd:distdbg" in line for line in file)
    return len(os.listdir("/proc/self/fd")), threading.active_count(), segments


def init_and_destroy() -> list[tuple[int, int, int]]:
    seen = []
    for _ in range(10):
        dist.init_process_group()
        group = dist.new_group([1, 0])
        work = dist.all_reduce(np.ones(3), group=group, async_op=True)
        assert work is not None
        work.wait()
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, np.ones(3), 1 - dist.get_rank()),
                dist.P2POp(dist.irecv, np.ones(3), 1 - dist.get_rank()),
            ]
        )
        for each in works:
            each.wait()
        dist.barrier()
        dist.destroy_process_group()
        with open(f"/proc/self/task/{os.getpid()}/status") as file:
            assert "Threads:\t1\n" in file.read()  # native threads have ended, too
        seen.append(holdings())
    return seen


def progress_without_a_wait() -> bool:
    dist.init_process_group()
    group = dist.new_group()
    x = np.full(1 << 20, float(dist.get_rank()))
    if dist.get_rank() == 1:
        dist.recv(np.zeros(1), src=0)  # rank 0 has started its op and computes now
        dist.all_reduce(x, group=group)
        dist.destroy_process_group()
        return True
    work = dist.all_reduce(x, group=group, async_op=True)
    assert work is not None
    dist.send(np.ones(1), dst=1)
    deadline = time.monotonic() + 10
    # No call into dist: only the background can bring the result.
    while x[-1] != 1 and time.monotonic() < deadline:
        sum(range(1000))
    arrived = bool(x[-1] == 1)
    work.wait()
    assert (x == 1).all()
    dist.destroy_process_group()
    return arrived


def reduce_many() -> float:
    dist.init_process_group()
    total = 0.0
    for count in (1, 1000, 100_000):
        x = np.full(count, dist.get_rank() + 1.0)
        dist.all_reduce(x)
        total += float(x[-1])
    dist.destroy_process_group()
    return total


def test_ten_inits_and_destroys_leave_nothing(ranks: Callable[..., list[Any]]) -> None:
    for seen in ranks(init_and_destroy, 2):
        assert seen == [seen[0]] * 10
        assert seen[0][2] == 0


def test_an_async_op_progresses_while_python_computes(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(progress_without_a_wait, 2) == [True, True]


def test_eight_ranks_on_fewer_cores(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(reduce_many, 8, timeout=40.0) == [3 * 36.0] * 8


@pytest.mark.slow
def test_64_ranks(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(reduce_many, 64, timeout=120.0) == [3 * 64 * 65 / 2] * 64


def use_in_a_forked_child() -> list[str]:
    dist.init_process_group()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            dist.barrier()
        except UsageError as error:
            code = 7 if "belongs to the parent process" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    x = np.ones(3)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return [str(os.waitstatus_to_exitcode(status)), str(x[0])]


def reduce_more_than_2_gib() -> list[int]:
    dist.init_process_group()
    x = np.ones((1 << 31) + 9, np.int8)
    dist.all_reduce(x)
    seen = [int(x.min()), int(x.max())]
    if dist.get_rank() == 0:
        x[-1] = 5
    dist.broadcast(x, src=0)
    dist.destroy_process_group()
    return [*seen, int(x[-1])]


@pytest.mark.slow
def test_a_forked_child_is_refused_and_harms_nobody(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(use_in_a_forked_child, 2) == [["7", "2.0"]] * 2


@pytest.mark.slow
def test_arrays_of_more_than_2_gib(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(reduce_more_than_2_gib, 2, timeout=120.0) == [[2, 2, 5]] * 2


def make_and_destroy_groups() -> list[str]:
    dist.init_process_group()
    me = dist.get_rank()
    store = dist.group.WORLD.get_group_store().underlying_store
    dist.barrier()
    before = set(store.list_keys())
    dist.barrier()
    for _ in range(3):
        # Some without this rank: each has to be taken away by its own members.
        made = [dist.new_group([2, 0]), dist.new_group([1]), *dist.new_subgroups(1)[1]]
        made.append(dist.split_group(dist.group.WORLD, [[0, 1]]))
        if me < 2:
            made.append(dist.new_group([1, 0], use_local_synchronization=True))
        for group in made:
            if isinstance(group, dist.ProcessGroup):
                dist.monitored_barrier(group)
                dist.destroy_process_group(group)
    dist.barrier()
    left = sorted(set(store.list_keys()) - before)
    dist.barrier()
    dist.destroy_process_group()
    return left


def test_groups_that_were_destroyed_leave_no_keys_in_the_store(
    ranks: Callable[..., list[Any]],
) -> None:
    assert ranks(make_and_destroy_groups, 3) == [[], [], []]
