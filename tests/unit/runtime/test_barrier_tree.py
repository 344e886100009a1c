"""The tree of monitored_barrier: every rank has its place, and only really missing ranks are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.runtime.members.barrier_tree import children_of, depth_of, find_missing, parent_of

ARITIES = (1, 2, 3, 4, 8)


def subtree(rank: int, size: int, arity: int) -> set[int]:
    found = {rank}
    for child in children_of(rank, size, arity):
        found |= subtree(child, size, arity)
    return found


@pytest.mark.parametrize("arity", ARITIES)
def test_every_rank_hangs_below_its_parent_once(arity: int) -> None:
    for size in range(1, 71):
        places = [child for rank in range(size) for child in children_of(rank, size, arity)]
        assert sorted(places) == list(range(1, size))
        for rank in range(size):
            children = children_of(rank, size, arity)
            assert len(children) <= arity
            assert all(parent_of(child, arity) == rank for child in children)
            assert all(depth_of(child, arity) == depth_of(rank, arity) + 1 for child in children)
        assert subtree(0, size, arity) == set(range(size))


@given(
    st.integers(1, 70).flatmap(
        lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))
    ),
    st.sampled_from(ARITIES),
)
def test_exactly_the_ranks_that_did_not_come_are_named(
    case: tuple[int, set[int]], arity: int
) -> None:
    size, absent = case
    is_complete = [not subtree(rank, size, arity) & absent for rank in range(size)]
    missing, stuck = find_missing(
        size,
        arity,
        # Rank 0 has nobody to report to.
        lambda rank: rank != 0 and is_complete[rank],
        lambda rank: rank not in absent,
    )
    if size > 1 or absent:
        assert missing == sorted(absent)
    if absent:
        assert stuck == []


@pytest.mark.parametrize("size", [2, 5, 21, 70])
def test_a_rank_that_holds_the_news_back_is_told_from_missing_ones(size: int) -> None:
    # All have come, all leaves have reported, rank 0 says nothing.
    assert find_missing(size, 4, lambda rank: rank != 0, lambda rank: True) == ([], [0])


def test_complete_branches_are_not_walked() -> None:
    asked: list[int] = []

    def is_complete(rank: int) -> bool:
        asked.append(rank)
        return rank not in (0, 2, 11)  # rank 11 is missing, below rank 2

    assert find_missing(70, 4, is_complete, lambda rank: rank != 11) == ([11], [])
    below_11 = list(children_of(11, 70, 4))
    assert sorted(asked) == sorted({0, 1, 2, 3, 4, 9, 10, 11, 12, *below_11})
