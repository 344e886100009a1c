"""Ranks that exchange with a peer which exchanges with another one."""

from __future__ import annotations

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder


def exchange(to: list[int], of: list[int]) -> Finding:
    """Each rank has begun a send and waits in a recv."""
    build = SessionBuilder(len(to))
    for rank, (target, source) in enumerate(zip(to, of, strict=True)):
        build.op(rank, "send", peer=target, at_s=1, is_async=True, site="/job/ring.py:51 (mix)")
        build.op(rank, "recv", peer=source, at_s=1, site="/job/ring.py:52 (mix)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    assert len(found.what) <= 120
    return found


def test_a_cycle_of_ranks_that_name_each_other_only_in_one_direction_is_told_so() -> None:
    found = exchange([1, 2, 3, 0], [1, 2, 3, 0])
    assert found.what == (
        "ranks 0-3 are deadlocked: each sends to the rank it receives from at ring.py:52, and no two "
        "name each other"
    )
    assert found.ranks == (0, 1, 2, 3)
    assert "in a ring receive from the other side" in found.advice
    texts = [each.text for each in found.evidence]
    assert any(
        text.startswith(
            "ranks 0-3 each send to the rank that they receive from: rank 0 names rank 1"
        )
        for text in texts
    )


def test_a_cycle_in_which_they_send_elsewhere_is_another_mistake() -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        build.op(rank, "recv", peer=(rank + 1) % 4, at_s=1, site="/job/ring.py:52 (mix)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    assert "name each other" not in found.what
