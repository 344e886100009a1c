from __future__ import annotations

from distdbg.cli.exec_ import fold


def test_ranks_that_say_the_same_are_one_row() -> None:
    same = {"value": "1", "type": "int"}
    rows = fold([0, 1, 2, 5], [same, same, {"error": "rank 2 is gone"}, same])
    assert rows == [("0-1,5", "1", "int", ""), ("2", "", "", "rank 2 is gone")]
