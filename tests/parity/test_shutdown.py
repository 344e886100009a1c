"""destroy_process_group: one group, all groups, and the time afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.process.world import World, use
from tests.parity.promise import on_ranks, promise


@promise("`destroy_process_group()` destroys the default group and all others")
def test_destroy_all() -> None:
    def run(rank: int) -> None:
        group = dist.new_group()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        with pytest.raises(ValueError, match="destroyed"):
            dist.barrier(group)

    on_ranks(run)


@promise("`destroy_process_group(group.WORLD)` destroys all groups as well")
def test_destroy_world() -> None:
    def run(rank: int) -> bool:
        dist.destroy_process_group(dist.group.WORLD)
        return dist.is_initialized()

    assert on_ranks(run) == [False, False]


@promise("`destroy_process_group(group)` destroys that group, the others go on")
def test_destroy_one() -> None:
    def run(rank: int) -> float:
        group, other = dist.new_group(), dist.new_group()
        dist.destroy_process_group(group)
        with pytest.raises(ValueError, match="destroyed"):
            dist.barrier(group)
        x = np.ones(1)
        dist.all_reduce(x, group=other)
        dist.all_reduce(x)
        return float(x[0])

    assert on_ranks(run) == [4.0, 4.0]


@promise("`destroy_process_group` of a group that this rank is not in does nothing")
def test_destroy_outside() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0])
        dist.destroy_process_group(group)
        dist.barrier()

    on_ranks(run)


@promise("After `destroy_process_group` the job may be initialized again")
def test_init_again() -> None:
    store = dist.HashStore()

    def run(rank: int) -> int:
        for _ in range(3):
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
            dist.barrier()
            dist.destroy_process_group()
        return 1

    assert on_ranks(run, is_initialized=False) == [1, 1]


@promise("`destroy_process_group` without a default group raises")
def test_destroy_too_early() -> None:
    with use(World()), pytest.raises((ValueError, RuntimeError), match="init_process_group"):
        dist.destroy_process_group()


@promise("Destroying a group twice raises")
def test_destroy_twice() -> None:
    def run(rank: int) -> None:
        group = dist.new_group()
        dist.destroy_process_group(group)
        with pytest.raises(ValueError, match="destroyed"):
            dist.destroy_process_group(group)

    on_ranks(run)


@promise("`shutdown` of a group ends it without the default group")
def test_shutdown_of_a_group() -> None:
    def run(rank: int) -> None:
        group = dist.new_group()
        group.shutdown()
        with pytest.raises(RuntimeError):
            dist.barrier(group)
        dist.barrier()

    on_ranks(run)


@promise("`abort` of a group ends its ops in flight with an error")
def test_abort_of_a_group() -> None:
    def run(rank: int) -> None:
        group = dist.new_group()
        if rank == 0:
            work = dist.barrier(group, async_op=True)
            assert work is not None
            group.abort()
            with pytest.raises(RuntimeError):
                work.wait()

    on_ranks(run)
