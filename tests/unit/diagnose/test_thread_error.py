"""A rank that others wait for and that has lost a thread: the thread's exception leads."""

from __future__ import annotations

from distdbg.diagnose.find.thread_error import tell_thread_error
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.session import RecordedProblem, Session
from distdbg.diagnose.traits import FactKind
from distdbg.record.known_marks import THREAD_ERROR
from tests.support.session_builder import SessionBuilder

FOUND = Finding(
    kind=FindingKind.STUCK_RANK,
    severity=Severity.ERROR,
    what="rank 0 waited 20 s for rank 1, asleep in next() at a.py:9; then the op timed out",
    ranks=(1,),
    victims=(0,),
)
RAISED = "thread 'loader' raised OSError: bad shard"


def session_of(*at_s: float, last_s: float = 2.0) -> Session:
    build = SessionBuilder(world_size=2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=last_s - 1, ended_s=last_s)
    build.session.ranks[1].found = tuple(
        RecordedProblem(
            type=THREAD_ERROR,
            what=RAISED,
            at_ns=int(second * 1e9),
            details=("/job/a.py:3 (decode)",),
        )
        for second in at_s
    )
    return build.session


def test_the_thread_leads_and_the_wait_is_its_first_evidence() -> None:
    found = tell_thread_error(FOUND, session_of(1.5))
    assert found.what == "rank 1's thread 'loader' raised OSError: bad shard at a.py:3 (decode)"
    assert found.evidence[0].text == FOUND.what
    assert found.evidence[1].text == f"rank 1: its {RAISED} at a.py:3 (decode)"
    assert found.advice.startswith("see why that thread raised")
    assert [fact.kind for fact in found.evidence if "its thread" in fact.text] == [FactKind.REASON]
    assert (found.ranks, found.victims, found.kind) == (FOUND.ranks, FOUND.victims, FOUND.kind)


def test_threads_of_other_ranks_of_other_times_and_other_findings_change_nothing() -> None:
    assert tell_thread_error(FOUND, session_of()) is FOUND
    assert tell_thread_error(FOUND, session_of(1.0, last_s=1000.0)) is FOUND
    other = Finding(kind=FindingKind.MISMATCH, severity=Severity.ERROR, what="x", ranks=(1,))
    assert tell_thread_error(other, session_of(1.5)) is other
