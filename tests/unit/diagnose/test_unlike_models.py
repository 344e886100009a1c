"""Whose model is the odd one, from what torch's DDP says on each rank."""

from __future__ import annotations

from distdbg.diagnose.find.dead import find_unlike_models


def reported(rank: int, count: int, other: int, others_count: int) -> str:
    return (
        "RuntimeError: DDP expects same model across all ranks, but "
        f"Rank {rank} has {count} params, while rank {other} has inconsistent {others_count} params."
    )


def test_the_rank_that_differs_from_most_is_the_odd_one() -> None:
    reasons = {rank: reported(rank, 6, 2, 4) for rank in (0, 1, 3)} | {2: reported(2, 4, 0, 6)}
    found = find_unlike_models(reasons)
    assert found is not None
    assert (found.odd, found.others) == ((2,), (0, 1, 3))
    assert found.what == (
        "the models for DDP differ: rank 2 has 4 parameters that require grad, ranks 0-1,3 have 6"
    )
    assert "rank 2" in found.advice


def test_an_error_that_was_not_seen_is_told_by_the_others() -> None:
    found = find_unlike_models({0: reported(0, 6, 2, 4), 1: reported(1, 6, 2, 4)})
    assert found is not None
    assert found.odd == (2,)


def test_nobody_is_blamed_where_it_cannot_be_told() -> None:
    assert find_unlike_models({0: reported(0, 6, 1, 4), 1: reported(1, 4, 0, 6)}) is None
    assert find_unlike_models({0: "ValueError: no data"}) is None
