"""What is said of an attempt that failed, and of all of them at the end."""

from __future__ import annotations

from distdbg.launch.cause import Cause, make_cause, say_attempts

LINES = [
    "rank 1 raised ValueError: no data (host n14, pid 8811)",
    "ranks 0,2 were terminated because of it",
    "failed at 2026-11-22T04:10:00",
    "at train.py:80 (step): y = x / 0",
    "at main.py:3 (main)",
]


def failed(attempt: int, what: str, place: str = "", word: str = "FAILED") -> Cause:
    return Cause(word=word, what=what, places=(place,) if place else (), attempt=attempt)


def test_an_attempt_is_its_cause_a_line_of_the_program_and_the_hint() -> None:
    assert make_cause("FAILED", LINES, "look there").lines == [
        "FAILED: rank 1 raised ValueError: no data",
        "at train.py:80 (step): y = x / 0",
        "hint: look there",
    ]
    assert make_cause("FAILED", LINES).lines == [
        "FAILED: rank 1 raised ValueError: no data",
        "at train.py:80 (step): y = x / 0",
        "at main.py:3 (main)",
    ]
    assert make_cause("FAILED", LINES[:1]).lines == ["FAILED: rank 1 raised ValueError: no data"]


def test_equal_causes_are_one_line_whatever_their_numbers() -> None:
    place = "at its end: in all_reduce #{} for {} s, train.py:80 (step)"
    causes = [
        failed(n, "rank 2 was killed by SIGSEGV", place.format(n, n / 2), "RANK DIED")
        for n in (1, 2, 3)
    ]
    assert [*say_attempts(causes)] == [
        "same cause each time (attempts 1-3): RANK DIED: rank 2 was killed by SIGSEGV, at train.py:80"
    ]


def test_the_line_of_a_last_op_is_not_that_of_the_end() -> None:
    last = failed(
        1, "rank 0 was killed by SIGKILL", "at its end: last op barrier #1, called at a.py:3 (f)"
    )
    assert [*say_attempts([last])] == [
        "attempt 1 failed: FAILED: rank 0 was killed by SIGKILL, last op at a.py:3"
    ]


def test_the_same_line_on_other_ranks_is_said_to_be_so() -> None:
    causes = [failed(n, f"rank {n} raised ValueError: no data", "at a.py:3 (f)") for n in (1, 2)]
    assert [*say_attempts(causes)] == [
        "same cause each time, on other ranks (attempts 1-2): FAILED: rank 2 raised ValueError: no "
        "data, at a.py:3"
    ]


def test_different_causes_have_a_line_each_in_the_order_of_their_first() -> None:
    causes = [
        failed(1, "rank 1 raised ValueError: no data", "at a.py:3 (f)"),
        failed(2, "rank 0 was killed by SIGKILL", word="RANK DIED"),
        failed(3, "rank 1 raised ValueError: no data", "at a.py:3 (f)"),
        failed(4, "rank 1 raised ValueError: no data", "at a.py:9 (g)"),
    ]
    assert [*say_attempts(causes)] == [
        "attempts 1,3 failed: FAILED: rank 1 raised ValueError: no data, at a.py:3",
        "attempt 2 failed: RANK DIED: rank 0 was killed by SIGKILL",
        "attempt 4 failed: FAILED: rank 1 raised ValueError: no data, at a.py:9",
    ]
    many = [failed(n, f"rank 0 raised {'abcdefghi'[n]}") for n in range(9)]
    assert [*say_attempts(many)][-1] == "attempts 6-8 failed, of 3 other causes"


def test_one_attempt_alone_is_said_too_and_none_is_nothing() -> None:
    assert [*say_attempts([failed(1, "x at a.py:3 (f)")])] == [
        "attempt 1 failed: FAILED: x at a.py:3 (f)"
    ]
    assert [*say_attempts([])] == []
