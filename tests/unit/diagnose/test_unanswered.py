"""A rank that answers each message, and waits for the next one without an answer to the last."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder


def farm(*, answered: int, others: int = 0, other_line: bool = False) -> Finding:
    """Rank 0 asks rank 2 and waits for its answer; rank 1 does the same work as rank 2."""
    build = SessionBuilder(3)

    def receive(rank: int, at_s: float) -> None:
        build.op(rank, "recv", peer=0, source=0, at_s=at_s, ended_s=at_s, site="farm.py:41 (work)")

    def answer(rank: int, at_s: float, line: int = 50) -> None:
        build.op(rank, "send", peer=0, at_s=at_s, ended_s=at_s, site=f"farm.py:{line} (work)")

    for turn in range(answered):
        receive(2, turn)
        answer(2, turn + 0.5, 51 if other_line and turn == 0 else 50)
    for turn in range(others):
        receive(1, turn)
        answer(1, turn + 0.5)
    receive(2, 20)
    build.op(2, "recv", peer=0, at_s=21, site="farm.py:41 (work)")
    build.op(0, "recv", peer=2, at_s=20, site="farm.py:22 (wave)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    return found


@pytest.mark.parametrize(
    ("answered", "others", "before"),
    [(12, 0, "as after its 12 messages before"), (0, 3, "as others do"), (1, 1, "as others do")],
)
def test_the_answer_that_was_left_out_is_told_with_its_line(
    answered: int, others: int, before: str
) -> None:
    found = farm(answered=answered, others=others)
    assert "rank 2 did not answer its last message at farm.py:50" in found.what
    assert (found.ranks, found.victims) == ((2,), (0,))
    reported = found.evidence[-1]
    assert (
        reported.text == f"rank 2 received at farm.py:41 and sent no answer at farm.py:50, {before}"
    )
    assert reported.is_left_out
    assert reported.site == "farm.py:50 (work)"
    assert found.advice == (
        "see why rank 2 did not send at farm.py:50 after its last message at farm.py:41"
    )


@pytest.mark.parametrize(
    ("answered", "others", "other_line"),
    [
        (1, 0, False),  # once is no habit
        (5, 0, True),  # answers from several lines: which was left out?
    ],
)
def test_without_a_habit_nobody_has_left_an_answer_out(
    answered: int, others: int, other_line: bool
) -> None:
    found = farm(answered=answered, others=others, other_line=other_line)
    assert "answer" not in found.what
    assert not any(one.is_left_out for one in found.evidence)
