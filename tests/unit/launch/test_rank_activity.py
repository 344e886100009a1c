from __future__ import annotations

from pathlib import Path

from distdbg.launch.rank_activity import HostActivity, fold, name_hang, name_waits, what_ranks_do
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
    assert what_ranks_do(tmp_path, {0: 1}) == HostActivity()


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


OPS = dict.fromkeys((0, 1, 3), "all_reduce #5 on group 'world' (x.py:12)")
WORDS_OF_FOUR = {
    **dict.fromkeys((0, 1, 3), "in all_reduce #5"),
    2: "last op all_reduce #4 ended 2 s ago",
}


def test_a_wait_that_is_no_hang_is_one_line_with_the_place_of_who_was_waited_for() -> None:
    waited = {0: 2.14, 1: 2.12, 3: 2.2}
    begin = "ranks 0-1,3 had waited 2.1 s in all_reduce #5 on group 'world' (x.py:12) for rank 2"
    assert name_waits(WORDS_OF_FOUR, waited, OPS, {2: "asleep in load() at x.py:7"}) == (
        f"{begin}, asleep in load() at x.py:7"
    )
    assert name_waits(WORDS_OF_FOUR, waited, OPS, {}) == (
        f"{begin} (last op all_reduce #4 ended 2 s ago)"
    )
    assert name_waits({**WORDS_OF_FOUR, 2: ""}, waited, OPS, {}) == begin


def test_several_that_are_waited_for_have_a_place_each() -> None:
    words = {0: "", **dict.fromkeys(range(1, 6), "in a loop")}
    places = {rank: f"in f() at x.py:{rank}" for rank in range(1, 6)}
    assert name_waits(words, {0: 1.5}, {0: "barrier #1"}, places) == (
        "rank 0 had waited 1.5 s in barrier #1 for ranks 1-5: rank 1 in f() at x.py:1; rank 2 in f() at "
        "x.py:2; rank 3 in f() at x.py:3; ..."
    )


def test_a_step_that_goes_on_and_ranks_in_several_ops_have_no_such_line() -> None:
    assert name_waits(WORDS_OF_FOUR, {0: 0.2, 1: 2.0, 3: 2.0}, OPS, {}) == ""
    assert name_waits(WORDS_OF_FOUR, {0: 2.0, 1: 2.0, 3: 2.0}, {**OPS, 1: "recv #2"}, {}) == ""
    assert name_waits(WORDS_OF_FOUR, dict.fromkeys(range(4), 2.0), OPS, {}) == ""
    assert name_waits(WORDS_OF_FOUR, {}, {}, {}) == ""
