from __future__ import annotations

from distdbg.agent.judging.reports import (
    CALM_NS,
    GRACE_NS,
    SETTLE_NS,
    STALL_NS,
    ReportChanges,
    ReportedRoot,
)
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.record.rank_state import RankState


def case(
    kind: FindingKind, *ranks: int, proof: str | None = None, state: RankState | None = None
) -> ReportedRoot:
    finding = Finding(
        kind=kind, severity=Severity.ERROR, what="it is so", ranks=ranks, victims=(9,)
    )
    return ReportedRoot(finding, proof, state=state)


def due_after(one: ReportedRoot) -> int | None:
    """When it is said; None: never."""
    news = ReportChanges()
    news = news.take(one, 0)
    for at in (0, SETTLE_NS, GRACE_NS, STALL_NS):
        if news.due(at) is one:
            return at
    return None


def test_a_job_of_which_no_rank_is_to_blame_is_aborted_in_whole_words() -> None:
    line = ReportChanges.abort_line
    assert line(case(FindingKind.DEADLOCK, 0, 1).finding) == (
        "DEADLOCK on ranks 0-1: the job is aborted"
    )
    assert line(case(FindingKind.MISMATCH).finding) == "MISMATCH on rank 9: the job is aborted"


def test_each_kind_has_its_patience() -> None:
    assert due_after(case(FindingKind.DEADLOCK, 0, 1, proof="deadlock")) == 0
    assert due_after(case(FindingKind.DEADLOCK, 0, 1)) is None
    assert due_after(case(FindingKind.DEAD_RANK, 0, proof="dead")) == GRACE_NS
    assert due_after(case(FindingKind.DEAD_RANK, 0)) is None
    assert due_after(case(FindingKind.MISSING_RANK, 0, proof="dead")) == GRACE_NS
    assert due_after(case(FindingKind.STUCK_RANK, 0, state=RankState.STOPPED)) == SETTLE_NS
    assert due_after(case(FindingKind.STALL, 0)) == STALL_NS
    assert due_after(case(FindingKind.STRAGGLER, 0)) is None


def test_a_case_is_said_once_however_often_it_is_found() -> None:
    news = ReportChanges()
    one = case(FindingKind.DEADLOCK, 0, 1, proof="deadlock")
    news = news.take(one, 0)
    assert news.due(0) is one
    news = news.said(one)
    news = news.take(case(FindingKind.DEADLOCK, 0, 1, proof="deadlock"), 1)
    assert news.due(1) is None


def test_the_wait_for_a_case_begins_when_it_is_first_true() -> None:
    news = ReportChanges()
    news = news.take(case(FindingKind.STALL, 0), 0)
    news = news.take(case(FindingKind.STALL, 0), STALL_NS - 1)
    assert news.due(STALL_NS) is not None
    news = news.take(case(FindingKind.STALL, 1), STALL_NS)
    assert news.due(STALL_NS + 1) is None


def test_a_stuck_rank_that_goes_on_is_taken_back_once_and_may_be_named_again() -> None:
    news = ReportChanges()
    one = case(FindingKind.STUCK_RANK, 3, state=RankState.STOPPED)
    news = news.take(one, 0)
    news = news.said(one)
    news, lines = news.taken_back({3: RankState.STOPPED}, 0)
    assert lines == []
    news, lines = news.taken_back({3: RankState.RUNNING}, 1)
    assert lines == []
    said = ["rank 3 goes on: no longer stopped"]
    news, lines = news.taken_back({3: RankState.RUNNING}, 1 + CALM_NS)
    assert lines == said
    news, lines = news.taken_back({3: RankState.RUNNING}, 2 + CALM_NS)
    assert lines == []
    news = news.take(None, 1)
    news = news.take(one, 2)
    assert news.due(2 + SETTLE_NS) is one


def test_a_stuck_rank_that_died_has_not_gone_on() -> None:
    news = ReportChanges()
    one = case(FindingKind.STUCK_RANK, 3, state=RankState.STOPPED)
    news = news.said(one)
    news, lines = news.taken_back({3: RankState.DEAD}, 0)
    assert lines == []


def test_a_stuck_rank_that_a_signal_ends_has_not_gone_on_either() -> None:
    news = ReportChanges()
    one = case(FindingKind.STUCK_RANK, 3, state=RankState.BUSY)
    news = news.said(one)
    news, lines = news.taken_back({3: RankState.RUNNING}, 0)
    assert lines == []
    news, lines = news.taken_back({3: RankState.FAILED}, CALM_NS)
    assert lines == []
    news, lines = news.taken_back({3: RankState.FAILED}, 2 * CALM_NS)
    assert lines == []


def test_what_keeps_coming_back_is_not_said_for_ever() -> None:
    news = ReportChanges()
    count = 0
    for at in range(100):
        one = case(FindingKind.STUCK_RANK, 3, state=RankState.STOPPED)
        news = news.take(one, at * STALL_NS)
        if news.due(at * STALL_NS + SETTLE_NS) is not None:
            news = news.said(one)
            count += 1
        news, _ = news.taken_back({3: RankState.RUNNING}, at * STALL_NS)
        news = news.take(None, at * STALL_NS + 1)
    assert count == 20


def test_what_is_proven_is_said_however_much_was_said_before() -> None:
    news = ReportChanges()
    for at in range(100):
        one = case(FindingKind.STUCK_RANK, 3, state=RankState.STOPPED)
        news = news.take(one, at * STALL_NS)
        if news.due(at * STALL_NS + SETTLE_NS) is one:
            news = news.said(one)
        news, _ = news.taken_back({3: RankState.RUNNING}, at * STALL_NS)
    proven = case(FindingKind.DEADLOCK, 0, 1, proof="deadlock")
    news = news.take(proven, 100 * STALL_NS)
    assert news.due(100 * STALL_NS) is proven


def test_what_was_said_before_it_was_proven_is_said_again() -> None:
    news = ReportChanges()
    news = news.take(case(FindingKind.MISSING_RANK, 3), 0)
    late = case(FindingKind.MISSING_RANK, 3)
    news = news.take(late, STALL_NS)
    assert news.due(STALL_NS) is late
    news = news.said(late)
    proven = case(FindingKind.MISSING_RANK, 3, proof="dead")
    news = news.take(proven, STALL_NS + 1)
    assert news.due(STALL_NS + 1) is None
    assert news.due(STALL_NS + 1 + GRACE_NS) is proven
    news = news.said(proven)
    assert news.due(STALL_NS + 1 + GRACE_NS) is None
