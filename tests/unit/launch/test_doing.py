from __future__ import annotations

from pathlib import Path

from distdbg.launch.doing import fold, what_ranks_do


def test_ranks_that_do_the_same_share_a_line_whatever_their_ages() -> None:
    words = {
        0: "in all_reduce #3 on group 'world' since 25.3 s, train.py:9 (step)",
        1: "in all_reduce #3 on group 'world' since 25.1 s, train.py:9 (step)",
        2: "last op all_reduce #2 on group 'world' ended 25.4 s ago, called at train.py:9 (step)",
    }
    assert fold(words) == (f"ranks 0-1: {words[0]}", f"rank 2: {words[2]}")


def test_many_places_are_cut_and_counted() -> None:
    lines = fold({rank: f"has called op {rank}" for rank in range(12)})
    assert lines[7:] == ("rank 7: has called op 7", "ranks 8-11: in 4 other places")


def test_ranks_without_a_record_say_nothing(tmp_path: Path) -> None:
    assert what_ranks_do(tmp_path, {0: 1}) == ()
