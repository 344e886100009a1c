"""The samples of a rank are those that torch's sampler gives it, to the last index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import distdbg as dist
from distdbg.runtime.parallel.sampler import permutation_without_torch

torch = pytest.importorskip("torch")


@given(
    st.integers(1, 300),
    st.integers(1, 9),
    st.integers(0, 2**40),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_samples_are_those_of_torch(
    count: int, size: int, seed: int, shuffle: bool, drop_last: bool, epoch: int
) -> None:
    from torch.utils.data.distributed import DistributedSampler

    for rank in range(size):
        ours = dist.DistributedSampler(range(count), size, rank, shuffle, seed, drop_last)
        theirs = DistributedSampler(range(count), size, rank, shuffle, seed, drop_last)
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)
        if (
            drop_last and count < size
        ):  # torch fails by an assertion, or repeats what it was to leave out
            assert list(ours) == []
            continue
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


@given(st.integers(0, 500), st.integers(0, 2**45))
def test_the_order_without_torch_is_that_of_torch(count: int, seed: int) -> None:
    generator = torch.Generator()
    generator.manual_seed(seed)
    expected = torch.randperm(count, generator=generator).tolist()
    assert permutation_without_torch(count, seed) == expected
