"""Which samples a rank takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import distdbg as dist
from distdbg.runtime.parallel.sampler import permutation_without_torch
from tests.support.store_ranks import run_store_ranks


@given(
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(0, 2**33),
    st.booleans(),
    st.integers(0, 3),
)
def test_all_ranks_take_equally_many_and_miss_no_sample(
    count: int, size: int, seed: int, shuffle: bool, epoch: int
) -> None:
    taken = []
    for rank in range(size):
        sampler = dist.DistributedSampler(range(count), size, rank, shuffle, seed)
        sampler.set_epoch(epoch)
        mine = list(sampler)
        assert mine == list(sampler)
        assert len(mine) == len(sampler)
        taken += mine
    assert set(taken) == set(range(count))
    assert len(taken) < count + size


@given(st.integers(1, 60), st.integers(1, 9))
def test_with_drop_last_no_sample_is_taken_twice(count: int, size: int) -> None:
    taken: list[int] = []
    lengths = set()
    for rank in range(size):
        mine = list(dist.DistributedSampler(range(count), size, rank, drop_last=True))
        taken += mine
        lengths.add(len(mine))
    assert len(set(taken)) == len(taken) > count - size
    assert len(lengths) == 1


def test_rank_and_size_are_those_of_the_default_group() -> None:
    def run(rank: int) -> list[int]:
        return list(dist.DistributedSampler(range(5), shuffle=False))

    assert run_store_ranks(run, 2) == [[0, 2, 4], [1, 3, 0]]


def test_epochs_are_shuffled_apart() -> None:
    sampler = dist.DistributedSampler(range(100), 1, 0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert "epoch 1" in repr(sampler)


def test_what_cannot_be_is_an_error() -> None:
    with pytest.raises(ValueError, match="rank 2 is not one of 2 ranks"):
        dist.DistributedSampler(range(5), 2, 2)
    with pytest.raises(RuntimeError, match="not been initialized"):
        dist.DistributedSampler(range(5))
    data = [1, 2, 3]
    sampler = dist.DistributedSampler(data, 2, 0, drop_last=True)
    data.clear()
    with pytest.raises(ValueError, match="has changed its length"):
        iter(sampler)
    with pytest.raises(ValueError, match="shuffled by torch alone"):
        permutation_without_torch(2**32, 0)


def test_the_order_of_a_seed_is_that_of_torch() -> None:
    """As torch.randperm(10) gave it after manual_seed(7)."""
    assert permutation_without_torch(10, 7) == [5, 0, 3, 4, 1, 7, 9, 6, 8, 2]
    assert permutation_without_torch(0, 7) == []
