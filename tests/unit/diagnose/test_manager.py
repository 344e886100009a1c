"""A manager and its workers in a deadlock: who got how many messages, and sent how many."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder


def farm(exchanges: Sequence[tuple[int, int]], *, lost: bool = False) -> Finding:
    """Workers 1, 2, ... got and sent so many messages; now each rank waits in a recv."""
    build = SessionBuilder(len(exchanges) + 1)
    for worker, (got, sent) in enumerate(exchanges, 1):
        for _ in range(got):
            build.op(0, "send", peer=worker, ended_s=2, site="farm.py:16 (main)")
            build.op(worker, "recv", peer=0, source=0, ended_s=2, site="farm.py:22 (work)")
        for _ in range(sent):
            build.op(worker, "send", peer=0, ended_s=3, site="farm.py:24 (work)")
            build.op(0, "recv", source=worker, ended_s=3, site="farm.py:13 (main)")
        build.op(worker, "recv", peer=0, at_s=4, site="farm.py:22 (work)")
    build.op(0, "recv", at_s=4, site="farm.py:13 (main)")
    if lost:
        build.session.ranks[0].lost["ops"] = 3
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    assert len(found.what) <= 120
    return found


def test_a_manager_waits_for_a_message_more_than_it_asked_for() -> None:
    found = farm([(2, 2), (3, 3), (1, 1)])
    assert found.what == (
        "ranks 0-3 are deadlocked: rank 0 waits at farm.py:13 for one message more; "
        "ranks 1-3 received 6 and sent 6"
    )
    assert found.ranks == (0, 1, 2, 3)  # nobody knows who is wrong
    assert [each.text for each in found.evidence] == [
        "rank 0 waits in recv from any rank on group 'world' at farm.py:13 (main) for any of ranks 1-3",
        "ranks 1-3 wait in recv from rank 0 on group 'world' at farm.py:22 (work)",
        "rank 0 sent 6 messages to ranks 1-3 and received 6 from them; no message is left over",
    ]
    assert "does not send the next one to ranks 1-3" in found.advice


def test_one_worker_that_has_not_answered_is_the_cause() -> None:
    found = farm([(2, 2), (3, 2), (1, 1)])
    assert found.what == (
        "ranks 0-3 are deadlocked: rank 2 waits at farm.py:22 and has not answered rank 0: "
        "it received 3 messages and sent 2"
    )
    assert (found.ranks, found.victims) == ((2,), (0, 1, 3))
    assert found.evidence[-1].text == (
        "rank 2 received 3 messages from rank 0 and sent it 2; "
        "ranks 1,3 sent one for each that they received"
    )
    assert found.advice == "see which message of rank 0 gets no answer from rank 2"


def test_a_manager_that_has_not_answered_one_worker_is_the_cause() -> None:
    found = farm([(2, 2), (1, 2), (1, 1)])
    assert found.what == (
        "ranks 0-3 are deadlocked: rank 0 waits at farm.py:13 and has not answered rank 2, "
        "which sent 2 and received 1"
    )
    assert (found.ranks, found.victims) == ((0,), (1, 2, 3))


def test_workers_that_ask_first_are_not_answered() -> None:
    found = farm([(1, 2), (0, 1), (3, 4)])
    assert found.what == (
        "ranks 0-3 are deadlocked: rank 0 waits at farm.py:13 for one message more before it answers "
        "ranks 1-3"
    )
    assert found.advice == "see whether rank 0 has to answer ranks 1-3 first"


def test_where_nothing_tells_them_apart_the_waits_alone_are_said() -> None:
    waits = (
        "ranks 0-2 are deadlocked: rank 0 in recv from any rank at farm.py:13, "
        "ranks 1-2 in recv from rank 0 at farm.py:22"
    )
    assert farm([(0, 0), (0, 0)]).what == waits
    assert farm([(2, 2), (2, 1)]).what == waits  # one of two: either may be the odd one
    assert farm([(2, 2), (2, 2)], lost=True).what == waits
