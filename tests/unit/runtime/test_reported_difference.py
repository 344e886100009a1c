"""A difference that one rank finds alone, as the others read it."""

from __future__ import annotations

from distdbg.errors import CollectiveError, MismatchError
from distdbg.runtime.backends.reported_difference import (
    BROKEN,
    reported_difference,
    words_for_others,
)

FIRST = (
    "recv on group 'world' differs between ranks: rank 0 sent float32[4], rank 1 expects float64[4]"
)
SENDER = "rank 0 called isend at train.py:20 (step)"
RECEIVER = "rank 1 called recv at train.py:33 (step)"


def test_the_others_are_told_the_lines_of_both() -> None:
    found = MismatchError(FIRST, details=[SENDER, RECEIVER, "the group is unusable"], ranks=[0, 1])
    reported = reported_difference(words_for_others(found), "rank 1", group="world")
    assert reported.what == FIRST
    assert reported.details == [SENDER, RECEIVER, "rank 1 found it", BROKEN]
    assert reported.ranks == [0, 1]
    assert reported.group == "world"


def test_what_others_read_is_one_line_that_other_hosts_can_print() -> None:
    found = MismatchError(FIRST, details=[SENDER, RECEIVER])
    assert words_for_others(found).isprintable()


def test_where_one_line_fits_it_is_that_of_who_found_it() -> None:
    long = "rank 0 called isend at " + "a/" * 30 + "train.py:20 (step)"
    found = MismatchError(FIRST, details=[long, RECEIVER])
    assert words_for_others(found) == f"{FIRST} | {RECEIVER}"


def test_where_no_line_fits_the_first_line_stays_whole() -> None:
    what = FIRST + " " + "x" * 100
    assert words_for_others(MismatchError(what, details=[SENDER, RECEIVER])) == what
    assert len(words_for_others(MismatchError(FIRST + "x" * 300, details=[SENDER]))) == 200


def test_room_is_counted_in_bytes() -> None:
    what = FIRST + " " + "\N{GREEK SMALL LETTER ALPHA}" * 50  # 2 bytes each
    assert words_for_others(MismatchError(what, details=[RECEIVER])) == what
    assert words_for_others(MismatchError(FIRST + "a" * 50, details=[RECEIVER])).endswith(RECEIVER)


def test_another_error_is_told_by_its_first_line() -> None:
    error = CollectiveError("all_reduce #3 on group 'world' cannot end", details=[SENDER])
    assert words_for_others(error) == error.what


def test_words_of_a_rank_that_knows_no_lines() -> None:
    assert reported_difference(FIRST, "rank 1").details == ["rank 1 found it", BROKEN]
