"""Ranks that called an op on a group that they are not in, for whom its members wait."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from distdbg.record.known_marks import NOT_A_MEMBER
from tests.support.session_builder import SessionBuilder


def mixed(call: str) -> Finding:
    """Rank 0 waits for rank 1 on group 'near'; rank 1 made this `call` before, and waits in an op of all."""
    build = SessionBuilder(2)
    build.group("near", (0, 1))
    build.op(0, "all_reduce", group="near", at_s=2, site="/job/a.py:27 (mean)")
    build.mark(1, f"{NOT_A_MEMBER}{call}", at_s=1)
    build.op(1, "all_reduce", at_s=2, site="/job/job.py:21 (average)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    return found


def test_the_rank_that_took_the_group_of_others_is_the_cause() -> None:
    found = mixed("all_reduce at /job/a.py:27 (mean)")
    reported = "rank 1 called all_reduce at a.py:27"
    assert reported in found.what
    assert (found.ranks, found.victims) == ((1,), (0,))
    assert found.advice == "see how a.py:27 chooses the group: rank 1 takes that of others"
    assert found.evidence[-1].text == (
        f"{reported} (mean) on a group that it is not in, which does nothing"
    )


@pytest.mark.parametrize(
    "call", ["all_reduce at /job/a.py:28 (mean)", "broadcast at /job/a.py:27 (mean)"]
)
def test_another_call_is_no_reason(call: str) -> None:
    found = mixed(call)
    assert "not in" not in found.what
    assert found.ranks == (0, 1)
