from __future__ import annotations

import pytest

from distdbg.agent.policy import find_blocked, find_proven_kind, read_abort_on, to_abort_words
from distdbg.control.words import AGENT
from distdbg.diagnose.finding import Finding, FindingKind, Role, Severity, Verdict
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.waits import find_waits
from distdbg.errors import ConfigError
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder


def hopeless_of(session: Session) -> frozenset[int]:
    return find_blocked(session, dict(find_waits(session, match(session))))


def found(kind: FindingKind, *ranks: int) -> Finding:
    return Finding(kind=kind, severity=Severity.ERROR, what="it is so", ranks=ranks, advice="do it")


@pytest.fixture
def waiting() -> SessionBuilder:
    """Rank 0 waits for rank 1, and rank 2 for rank 0."""
    build = SessionBuilder(3, is_live=True)
    for rank, peer in ((0, 1), (2, 0)):
        build.op(rank, "recv", peer=peer, at_s=1.0)
        build.seen(rank, RankState.WAITING, since_s=1.0)
    return build


def test_who_waits_for_a_rank_that_computes_proves_nothing(waiting: SessionBuilder) -> None:
    waiting.seen(1, RankState.RUNNING, since_s=1.0)
    blocked = hopeless_of(waiting.session)
    assert blocked == frozenset()
    assert find_proven_kind(waiting.session, found(FindingKind.DEAD_RANK, 1), blocked) is None


def test_who_waits_for_a_dead_rank_waits_for_ever(waiting: SessionBuilder) -> None:
    waiting.end(1, at_s=2.0, cause="signal", signal=9)
    blocked = hopeless_of(waiting.session)
    assert blocked == {0, 2}
    assert find_proven_kind(waiting.session, found(FindingKind.DEAD_RANK, 1), blocked) == "dead"
    assert find_proven_kind(waiting.session, found(FindingKind.MISSING_RANK, 1), blocked) == "dead"
    assert find_proven_kind(waiting.session, found(FindingKind.MISMATCH, 1), blocked) == "mismatch"
    assert find_proven_kind(waiting.session, found(FindingKind.STUCK_RANK, 1), blocked) is None


def test_a_deadlock_is_proven_when_all_of_it_wait_for_ever(waiting: SessionBuilder) -> None:
    waiting.op(1, "recv", peer=2, at_s=1.0)
    waiting.seen(1, RankState.WAITING, since_s=1.0)
    blocked = hopeless_of(waiting.session)
    assert blocked == {0, 1, 2}
    assert (
        find_proven_kind(waiting.session, found(FindingKind.DEADLOCK, 0, 1, 2), blocked)
        == "deadlock"
    )
    assert find_proven_kind(waiting.session, found(FindingKind.DEADLOCK, 0, 5), blocked) is None


def test_a_missing_rank_that_lives_is_not_proven_to_be_missing(waiting: SessionBuilder) -> None:
    root = found(FindingKind.MISSING_RANK, 1)
    assert find_proven_kind(waiting.session, root, frozenset({0})) is None


def test_ranks_raise_what_the_agent_prints() -> None:
    root = found(FindingKind.DEADLOCK, 0, 1)
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={0: Role.ROOT})
    words = to_abort_words(verdict, ["it is so", "  rank 0 waits", "  hint: do it"])
    assert (words.what, words.type, words.by) == ("it is so", "deadlock", AGENT)
    assert (list(words.ranks), list(words.details), words.hint) == (
        [0, 1],
        ["rank 0 waits"],
        "do it",
    )


def test_kinds_are_read_and_checked() -> None:
    assert read_abort_on("dead, Mismatch") == {"dead", "mismatch"}
    assert read_abort_on("none") == frozenset()
    with pytest.raises(ConfigError, match="unknown kind 'slow'"):
        read_abort_on("dead,slow")


def test_who_waits_beside_a_death_that_it_has_not_noticed_is_told(waiting: SessionBuilder) -> None:
    waiting.seen(1, RankState.RUNNING, since_s=1.0)
    build = waiting.session
    dead = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what="dead",
        ranks=(1,),
        at_ns=2 * 10**9,
    )
    assert find_proven_kind(build, dead, frozenset()) is None  # it lives
    waiting.end(1, at_s=2.0, cause="signal", signal=9)
    assert find_proven_kind(build, dead, frozenset()) == "dead"
