"""Ranks that make different groups: the whole text of what each is told."""

from __future__ import annotations

from typing import Any

from distdbg.check.group_differences import explain_cycle, explain_groups


def words(rank: int, ranks: list[int], line: int = 8) -> dict[str, Any]:
    return {
        "rank": rank,
        "ranks": ranks,
        "name": "3",
        "function": "new_group",
        "site": f"/a/train.py:{line} (main)",
    }


def test_the_whole_text() -> None:
    known = [words(0, [0, 1, 2]), words(2, [0, 1, 2]), words(1, [0, 1], 9)]
    assert str(explain_groups(known, 1)) == (
        "new_group #3 differs between ranks: group 0-2 on ranks 0,2, group 0-1 on rank 1\n"
        "  ranks 0,2 called new_group for group 0-2 at train.py:8 (main)\n"
        "  rank 1 called new_group for group 0-1 at train.py:9 (main)\n"
        "  the group was not made on these ranks; other groups are unaffected\n"
        "  this rank is the one that differs\n"
        "  hint: every rank must make the same groups in the same order, including groups it is not in"
    )


def test_orders_of_ranks_are_told_apart() -> None:
    error = explain_groups([words(0, [0, 1]), words(1, [1, 0])], 0)
    assert "group 0-1 on rank 0, group 1,0 in this order on rank 1" in str(error)
    assert error.ranks == [0, 1]


def test_a_cycle_names_what_each_makes() -> None:
    error = explain_cycle([words(1, [0, 1]), words(0, [0, 2])])
    assert "ranks 0-1 are deadlocked, each in another group" in error.what
    assert "rank 0 makes group 0,2, rank 1 makes group 0-1" in error.what
