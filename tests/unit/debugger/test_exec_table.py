from __future__ import annotations

import pytest

from distdbg.cli.exec_ import fold, split_words


def test_ranks_that_say_the_same_are_one_row() -> None:
    same = {"value": "1", "type": "int"}
    rows = fold([0, 1, 2, 5], [same, same, {"error": "rank 2 is gone"}, same])
    assert rows == [("0-1,5", "1", "int", ""), ("2", "", "", "rank 2 is gone")]


@pytest.mark.parametrize(
    ("words", "run", "expression"),
    [
        (["x"], None, "x"),
        (["2026-a", "x"], "2026-a", "x"),
        (["x", "2026-a"], "2026-a", "x"),
        (["2026-a", "2026-b"], "2026-a", "2026-b"),
        (["gone", "x"], "gone", "x"),  # which is then said not to be found
    ],
)
def test_a_run_and_an_expression_are_told_apart_in_either_order(
    words: list[str], run: str | None, expression: str
) -> None:
    assert split_words(words, lambda word: word.startswith("2026-")) == (run, expression)
