"""monitored_barrier names who did not come."""

from __future__ import annotations

from datetime import timedelta

import pytest

import distdbg as dist
from distdbg.errors import OpTimeout
from distdbg.testing.store_ranks import run_store_ranks

SHORT = timedelta(seconds=0.1)


def test_all_come_again_and_again() -> None:
    def run(rank: int) -> None:
        for _ in range(3):
            dist.monitored_barrier(timeout=timedelta(seconds=5))

    run_store_ranks(run, 3)


@pytest.mark.parametrize(("wait_all_ranks", "missing"), [(False, [1]), (True, [1, 3])])
def test_every_rank_that_came_learns_who_is_missing(
    wait_all_ranks: bool, missing: list[int]
) -> None:
    def run(rank: int) -> list[int]:
        if rank in (1, 3):
            return []
        with pytest.raises(OpTimeout) as caught:
            dist.monitored_barrier(timeout=SHORT, wait_all_ranks=wait_all_ranks)
        assert caught.value.kind == "monitored_barrier"
        return caught.value.missing

    assert run_store_ranks(run, 4) == [missing, [], missing, []]
