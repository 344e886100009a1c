"""Deadlocks and what ranks do beside them: threads, async ops, computing, having left."""

import pytest

from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.deadlocks import deadlocks, only, ring_of_recvs


def test_an_async_op_that_nobody_waits_for_blocks_nobody() -> None:
    build = ring_of_recvs(2, world_size=3)
    build.op(2, "recv", peer=0, is_async=True)
    assert only(build.session).victims == ()


def test_waits_for_async_ops_are_waits() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.wait(build.op(rank, "recv", peer=1 - rank, is_async=True), since_s=1.0)
    assert only(build.session).ranks == (0, 1)


def test_a_wait_with_a_limit_of_its_own_goes_on_by_itself() -> None:
    """`Work.wait(timeout)`: the program has the word again, and may do what the others wait for."""
    build = SessionBuilder(2)
    for rank in range(2):
        op = build.op(rank, "recv", peer=1 - rank, is_async=True)
        build.wait(op, since_s=1.0, is_limited=rank == 0)
    assert deadlocks(build.session) == []


def test_a_rank_of_two_threads_moves_while_one_of_them_does() -> None:
    build = ring_of_recvs(2)
    build.op(1, "barrier", thread=77, at_s=0.1, ended_s=0.2, seq=1)
    assert deadlocks(build.session) == []
    build.op(1, "send", peer=0, tag=4, thread=77, at_s=3.0)
    found = only(build.session)
    assert found.ranks == (0, 1)
    assert len(found.edges) == 3


def test_a_thread_that_has_ended_does_not_count() -> None:
    build = ring_of_recvs(2)
    build.op(1, "send", peer=0, thread=77, at_s=0.1, ended_s=0.2)
    build.session.ranks[1].threads = frozenset({1001})
    assert only(build.session).ranks == (0, 1)


def test_a_thread_whose_ops_have_all_ended_counts_in_a_living_session() -> None:
    build = ring_of_recvs(2)
    build.session.ranks[1].issuers = frozenset({77, 1001})
    assert deadlocks(build.session) == []


def test_threads_without_numbers_are_one() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "recv", peer=1 - rank, thread=0)
    assert only(build.session).ranks == (0, 1)


def test_an_op_of_another_thread_does_not_block_the_main_thread() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "recv", peer=1 - rank, thread=77)
    assert deadlocks(build.session) == []


def test_who_computes_is_no_part_of_a_deadlock() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv", peer=1)
    build.op(1, "recv", peer=2)
    assert deadlocks(build.session) == []


@pytest.mark.parametrize("state", [state for state in RankState if state.is_stuck])
def test_who_is_stuck_is_no_part_of_a_deadlock(state: RankState) -> None:
    build = ring_of_recvs(2)
    build.seen(1, state, since_s=2.0)
    assert deadlocks(build.session) == []


def test_who_is_gone_is_no_part_of_a_deadlock() -> None:
    build = ring_of_recvs(3)
    build.end(1, at_s=2.0, cause="exited", exit_code=1)
    assert deadlocks(build.session) == []


def test_a_rank_that_nothing_is_known_of_is_no_part_of_a_deadlock() -> None:
    build = ring_of_recvs(3)
    build.lose(2)
    assert deadlocks(build.session) == []


def test_a_torn_record_is_no_part_of_a_deadlock() -> None:
    build = ring_of_recvs(3)
    build.session.ranks[2].lost = {"gaps": 1}
    assert deadlocks(build.session) == []


def test_a_deadlock_beside_a_rank_without_record_is_one() -> None:
    build = ring_of_recvs(2, world_size=4)
    build.lose(3)
    assert only(build.session).ranks == (0, 1)


def test_a_group_that_is_broken_lets_its_ranks_go() -> None:
    build = ring_of_recvs(2)
    log = build.session.ranks[0]
    log.progress[0] = type(log.progress[0])(issued_seq=0, ended_seq=0, broken="timed out")
    assert deadlocks(build.session) == []
