"""The session as it was at a moment of its past."""

import pytest

from distdbg.diagnose.as_of import session_at
from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.ops import IN_FLIGHT, NEVER
from distdbg.diagnose.session import GroupProgress, Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from tests.support.planted import FAULTS, plant
from tests.support.session_builder import SessionBuilder

S = 10**9


def hung() -> Session:
    """Rank 1 sleeps from 2.5 s on; rank 0 waits for it from 3 s and gives up at 13 s; then all end."""
    build = SessionBuilder(2, now_s=20)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1 + rank, ended_s=2.2, site="a.py:1 (f)")
    build.op(0, "barrier", at_s=3, ended_s=13, status=Status.TIMEOUT, error="it waited")
    build.seen(1, RankState.ASLEEP, since_s=5, site="data.py:3 (load)")
    build.found(0, "OpTimeout", "barrier #2 waited", at_s=13)
    build.exit(0, Exit.RAISED, at_s=14, what="OpTimeout: it waited")
    build.end(0, at_s=15, cause="exited", exit_code=1)
    return build.session


def test_what_was_not_yet_is_not_there() -> None:
    then = session_at(hung(), int(1.5 * S))
    assert [len(log.ops) for log in then.ranks.values()] == [1, 0]
    first = then.ranks[0]
    assert (first.ops.status[0], first.ops.ended_ns[0]) == (IN_FLIGHT, NEVER)
    assert first.progress[0] == GroupProgress(issued_seq=1, ended_seq=0)
    assert then.ranks[1].progress[0] == GroupProgress(issued_seq=0, ended_seq=0)
    assert (first.exit, first.end, first.found, then.ranks[1].activity) == (None, None, (), None)
    assert (then.is_live, then.now_ns) == (True, int(1.5 * S))


def test_an_op_that_was_to_fail_is_in_flight_until_then() -> None:
    then = session_at(hung(), 8 * S)
    ops = then.ranks[0].ops
    assert list(ops.status) == [Status.OK, IN_FLIGHT]
    assert ops.errors == {}
    verdict = diagnose(then)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.STALL  # asleep for 5 s: a note
    assert verdict.root.ranks == (1,)
    late = session_at(hung(), int(14.5 * S))
    assert list(late.ranks[0].ops.status) == [Status.OK, Status.TIMEOUT]
    assert late.ranks[0].exit is Exit.RAISED
    assert late.ranks[0].end is None


def test_after_the_last_sign_of_life_it_is_the_session_itself() -> None:
    session = hung()
    assert session_at(session, 20 * S) is session
    assert session_at(session, 99 * S) is session


def test_clocks_of_ranks_are_corrected() -> None:
    session = hung()
    session.ranks[1].offset_ns = 100 * S
    assert len(session_at(session, 3 * S).ranks[1].ops) == 0
    session.now_ns = 200 * S
    assert len(session_at(session, 102 * S + S // 2).ranks[1].ops) == 1


def test_the_original_is_left_as_it_was() -> None:
    session = hung()
    before = [bytes(log.ops.status) for log in session.ranks.values()]
    session_at(session, 2 * S)
    assert [bytes(log.ops.status) for log in session.ranks.values()] == before


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_any_moment_of_any_fault_can_be_diagnosed(fault: str) -> None:
    session = plant(16, 40, fault)
    for part in range(12):
        then = session_at(session, session.now_ns * part // 10)
        for log in then.ranks.values():
            assert all(issued + log.offset_ns <= then.now_ns for issued in log.ops.issued_ns)
            assert all(far.ended_seq <= far.issued_seq for far in log.progress.values())
        diagnose(then)
