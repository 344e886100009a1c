from __future__ import annotations

from pathlib import Path

from distdbg.launch.doing import fold, name_hang, what_ranks_do
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import limit_ns


def test_ranks_that_do_the_same_share_a_line_whatever_their_ages() -> None:
    words = {
        0: "in all_reduce #3 on group 'world' for 25.3 s, train.py:9 (step)",
        1: "in all_reduce #3 on group 'world' for 25.1 s, train.py:9 (step)",
        2: "last op all_reduce #2 on group 'world' ended 25.4 s ago, called at train.py:9 (step)",
    }
    assert fold(words) == (f"ranks 0-1: {words[0]}", f"rank 2: {words[2]}")


def test_many_places_are_cut_and_counted() -> None:
    lines = fold({rank: f"has called op {rank}" for rank in range(12)})
    assert lines[7:] == ("rank 7: has called op 7", "ranks 8-11: in 4 other places")


def test_ranks_without_a_record_say_nothing(tmp_path: Path) -> None:
    assert what_ranks_do(tmp_path, {0: 1}) == ((), "")


WORDS = {0: "in all_reduce #4", 1: "in all_reduce #4", 2: "last op all_reduce #3"}


def test_who_is_waited_for_for_long_is_named_with_its_place() -> None:
    waited = {0: 99.4, 1: 99.2}
    assert name_hang(WORDS, waited, {2: "asleep in load() at slp.py:7"}) == (
        "ranks 0-1 waited 1 min 39 s for rank 2, asleep in load() at slp.py:7"
    )
    assert name_hang(WORDS, waited, {}) == "ranks 0-1 waited 1 min 39 s for rank 2"


def test_a_short_wait_and_one_that_has_just_begun_are_no_hang() -> None:
    assert name_hang(WORDS, {0: 3.0, 1: 3.0}, {}) == ""
    assert name_hang(WORDS, {0: 99.0, 1: 99.0, 2: 0.1}, {}) == ""
    assert name_hang(WORDS, {}, {}) == ""


def test_ranks_that_all_wait_are_a_hang_of_all() -> None:
    assert name_hang(WORDS, {0: 30.0, 1: 31.0, 2: 40.0}, {}) == "ranks 0-2 waited 30 s"


def test_what_is_too_long_depends_on_what_the_late_rank_does() -> None:
    waited = {0: 11.0, 1: 11.2}
    busy_ns = limit_ns(RankState.BUSY)
    assert name_hang(WORDS, waited, {2: "busy in crunch() at spin.py:6"}, {2: busy_ns}) == (
        "ranks 0-1 waited 11 s for rank 2, busy in crunch() at spin.py:6"
    )
    survived_ns = limit_ns(RankState.BUSY, longest_gap_ns=5 * 10**9)
    assert name_hang(WORDS, waited, {}, {2: survived_ns}) == ""
    assert name_hang(WORDS, waited, {}, {2: limit_ns(RankState.ASLEEP)}) == ""
    assert name_hang(WORDS, {0: 0.5, 1: 0.5}, {}, {2: limit_ns(RankState.STOPPED)}) == (
        "ranks 0-1 waited 0.50 s for rank 2"
    )
