"""Ranks as threads of one process."""

from __future__ import annotations

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import OpTimeout, PeerLost, UsageError


def add_up(offset: int) -> list[float]:
    values = np.full(2, dist.get_rank() + offset, dtype=np.float64)
    dist.all_reduce(values)
    result: list[float] = values.tolist()
    return result


def test_each_rank_finds_its_group_ready() -> None:
    assert dist.run_threads(lambda: (dist.get_rank(), dist.get_world_size()), 3) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]


def test_collectives_work_between_threads() -> None:
    assert dist.run_threads(add_up, 4, 10) == [[46.0, 46.0]] * 4


def test_the_callers_own_world_is_left_alone() -> None:
    dist.run_threads(add_up, 2, 0)
    assert not dist.is_initialized()


def test_a_group_destroyed_by_the_function_is_fine() -> None:
    def leave() -> bool:
        dist.destroy_process_group()
        return dist.is_initialized()

    assert dist.run_threads(leave, 2) == [False, False]


def test_a_rank_that_raises_releases_the_others_and_is_named() -> None:
    def fail_on_two() -> None:
        if dist.get_rank() == 2:
            raise ValueError("two is unhappy")
        dist.barrier()

    with pytest.raises(ValueError, match="two is unhappy") as caught:
        dist.run_threads(fail_on_two, 4)
    assert caught.value.__notes__ == ["raised by rank 2 of 4 (run_threads)"]


def test_a_rank_that_raises_releases_those_that_are_making_a_group() -> None:
    def fail_on_one() -> None:
        if dist.get_rank() == 1:
            raise ValueError("one is unhappy")
        dist.new_group([0, 1])

    with pytest.raises(ValueError, match="one is unhappy"):
        dist.run_threads(fail_on_one, 2)


def test_the_timeout_names_the_ranks_and_where_they_are() -> None:
    def wait_for_each_other() -> None:
        dist.recv(np.zeros(1), src=1 - dist.get_rank())

    with pytest.raises(OpTimeout, match=r"ranks 0-1 of 2 did not return within \d+\.") as caught:
        dist.run_threads(wait_for_each_other, 2, timeout_s=1.0)
    assert (caught.value.missing, caught.value.arrived) == ([0, 1], [])
    assert f"rank 1 is at {__file__}:" in caught.value.details[1]
    assert "wait_for_each_other" in caught.value.details[1]


def test_a_rank_that_waits_for_one_that_returned_learns_it() -> None:
    def wait_for_zero() -> None:
        if dist.get_rank() == 1:
            dist.recv(np.zeros(1), src=0)

    with pytest.raises(PeerLost, match=r"rank 0 left \(returned\)"):
        dist.run_threads(wait_for_zero, 2)


def test_no_rank_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one rank"):
        dist.run_threads(add_up, 0, 0)
