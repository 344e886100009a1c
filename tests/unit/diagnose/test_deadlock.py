from collections.abc import Sequence

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.waits import find_waits
from distdbg.record.format import Exit
from distdbg.record.rank_state import RankState
from distdbg.testing.session_builder import SessionBuilder


def deadlocks(session: Session) -> list[Finding]:
    matched = match(session)
    return find(session, matched, find_waits(session, matched))


def ring_of_recvs(size: int, world_size: int | None = None) -> SessionBuilder:
    build = SessionBuilder(world_size or size)
    for rank in range(size):
        build.op(rank, "recv", peer=(rank + 1) % size, at_s=1.0, site="train.py:88 (step)")
    return build


def texts(finding: Finding) -> Sequence[str]:
    return [each.text for each in finding.evidence]


def test_two_ranks_that_both_receive_first_are_a_circle() -> None:
    (found,) = deadlocks(ring_of_recvs(2).session)
    assert found.ranks == (0, 1)
    assert found.what == (
        "ranks 0-1 wait for each other in a circle of 2: recv from rank 1, recv from rank 0"
    )
    assert "isend" in found.advice
    assert texts(found)[0] == (
        "rank 0 waits in recv from rank 1 on group 'world' at train.py:88 (step) for rank 1"
    )


def test_circles_of_messages_of_three_and_four() -> None:
    for size in (3, 4):
        (found,) = deadlocks(ring_of_recvs(size).session)
        assert found.ranks == tuple(range(size))
        assert f"in a circle of {size}" in found.what
        assert len(found.what) <= 120


def test_groups_in_another_order_are_a_circle() -> None:
    build = SessionBuilder(2)
    build.group("a", [0, 1])
    build.group("b", [0, 1])
    build.op(0, "all_reduce", group="a", at_s=1.0)
    build.op(1, "all_reduce", group="b", at_s=1.0)
    (found,) = deadlocks(build.session)
    assert found.ranks == (0, 1)
    assert found.advice == "use the groups in the same order on all ranks"


def test_who_runs_is_no_part_of_a_deadlock() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=1)
    assert deadlocks(build.session) == []


def test_who_is_stopped_is_no_part_of_a_deadlock() -> None:
    build = ring_of_recvs(2)
    build.seen(1, RankState.STOPPED, since_s=2.0)
    assert deadlocks(build.session) == []


def test_who_is_gone_is_no_part_of_a_deadlock() -> None:
    build = ring_of_recvs(2)
    build.exit(1, Exit.LEFT, at_s=2.0)
    assert deadlocks(build.session) == []


def test_a_rank_that_nothing_is_known_of_is_no_part_of_a_deadlock() -> None:
    build = ring_of_recvs(3)
    build.lose(2)
    assert deadlocks(build.session) == []
