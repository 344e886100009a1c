from distdbg.diagnose.finding import Edge
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import GroupProgress, Session
from distdbg.diagnose.waits import find_waits
from distdbg.record.format import Aside, Exit
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder


def waits_of(session: Session) -> dict[int, tuple[Edge, ...]]:
    return find_waits(session, match(session))


def whom(session: Session) -> dict[int, tuple[int, ...]]:
    return {rank: edges[0].on for rank, edges in waits_of(session).items()}


def test_a_collective_waits_for_those_that_have_not_come() -> None:
    build = SessionBuilder(4)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=2.0, site="/home/ada/train.py:88 (step)")
    found = waits_of(build.session)
    assert found.keys() == {0, 1}
    (edge,) = found[0]
    assert edge.on == (2, 3)
    assert edge.on is found[1][0].on
    assert not edge.is_any
    assert edge.text == "all_reduce #1 on group 'world'"
    assert edge.site == "train.py:88 (step)"
    assert edge.since_ns == 2 * 10**9


def test_times_are_on_the_clock_of_the_session() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=1, at_s=2.0)
    build.session.ranks[0].offset_ns = 7
    assert waits_of(build.session)[0][0].since_ns == 2 * 10**9 + 7


def test_a_rank_of_which_nothing_is_known_is_waited_for() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce")
    build.lose(1)
    assert whom(build.session) == {0: (1,)}


def test_progress_tells_who_has_come_when_the_op_is_not_there() -> None:
    build = SessionBuilder(3, is_live=True)
    build.op(0, "all_reduce")
    build.session.ranks[1].progress[0] = GroupProgress(issued_seq=1, ended_seq=1)
    assert whom(build.session) == {0: (2,)}


def test_an_op_that_all_are_in_waits_for_who_does_not_carry_on() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "all_reduce", started_s=1.0)
    assert whom(build.session) == {}
    build.seen(1, RankState.STOPPED, since_s=2.0)
    assert whom(build.session) == {0: (1,), 2: (1,)}
    build.end(2, at_s=3.0, cause="signal", signal=9)
    assert whom(build.session) == {0: (1, 2)}


def test_who_has_died_in_an_op_is_waited_for_like_those_that_have_not_come() -> None:
    build = SessionBuilder(3)
    build.op(0, "all_reduce")
    build.op(1, "all_reduce")
    build.end(1, at_s=3.0, cause="signal", signal=9)
    assert whom(build.session) == {0: (1, 2)}


def test_who_has_left_after_the_op_is_not_waited_for() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce", at_s=1.0)
    build.op(1, "all_reduce", at_s=1.0, ended_s=2.0)
    build.exit(1, Exit.RETURNED, at_s=3.0)
    assert whom(build.session) == {}


def test_a_send_to_who_is_stopped_in_the_recv_waits_for_it() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1)
    build.op(1, "recv", peer=0)
    assert whom(build.session) == {}
    build.seen(1, RankState.STOPPED, since_s=2.0)
    assert whom(build.session) == {0: (1,)}


def test_a_recv_from_any_waits_for_any_other_that_has_not_left() -> None:
    build = SessionBuilder(4)
    build.op(0, "recv")
    build.exit(3, Exit.LEFT, at_s=1.0)
    (edge,) = waits_of(build.session)[0]
    assert edge.is_any
    assert edge.on == (1, 2)


def test_a_recv_from_any_waits_for_those_that_left_when_all_have() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv")
    for rank in (1, 2):
        build.exit(rank, Exit.LEFT, at_s=1.0)
    assert whom(build.session) == {0: (1, 2)}


def test_one_message_for_two_receivers_from_any_lets_one_go() -> None:
    build = SessionBuilder(2)
    first = build.op(0, "recv", is_async=True)
    second = build.op(0, "recv", is_async=True)
    build.op(1, "send", peer=0)
    build.wait(first, since_s=1.0)
    assert whom(build.session) == {}
    build.session.ranks[0].work_waits = ()
    build.wait(second, since_s=1.0)
    assert whom(build.session) == {0: (1,)}


def test_a_send_to_who_receives_from_any_meets_it() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv")
    build.op(1, "send", peer=0)
    build.op(2, "send", peer=0, tag=1)
    assert whom(build.session) == {2: (0,)}


def test_a_thread_that_waits_for_several_ops_waits_for_whom_any_of_them_does() -> None:
    build = SessionBuilder(4)
    for peer in (1, 3):
        build.wait(build.op(0, "recv", peer=peer, is_async=True), since_s=1.0)
    assert whom(build.session) == {0: (1, 3)}


def test_a_wait_for_an_op_that_is_not_there_proves_nothing() -> None:
    build = SessionBuilder(2)
    op = build.op(0, "recv", peer=1, is_async=True)
    build.wait(op, since_s=1.0)
    build.session.ranks[0].ops.number[0] = 77
    assert whom(build.session) == {}


def test_a_wait_for_an_op_that_has_ended_is_over() -> None:
    build = SessionBuilder(2)
    build.wait(build.op(0, "recv", peer=1, is_async=True, ended_s=1.0), since_s=0.5)
    assert whom(build.session) == {}


def test_the_main_thread_comes_first() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=1, tag=1, thread=5)
    build.op(0, "recv", peer=1, tag=2)
    assert [edge.text for edge in waits_of(build.session)[0]] == [
        "recv from rank 1 (tag 2) on group 'world'",
        "recv from rank 1 (tag 1) on group 'world'",
    ]


def test_a_send_that_has_been_taken_is_over_before_its_sender_notices() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1, at_s=1.0, ended_s=1.9)
    build.op(1, "recv", peer=0, at_s=0.5, started_s=1.8, ended_s=2.1)
    build.op(0, "send", peer=1, at_s=2.0)
    assert whom(build.session) == {0: (1,)}
    build.op(1, "recv", peer=0, at_s=2.2, started_s=2.3, ended_s=2.4)
    assert whom(build.session) == {}


def test_a_recv_that_was_read_before_its_message_ended_is_over() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1, at_s=1.0, ended_s=2.3)
    build.op(1, "recv", peer=0, at_s=0.5, started_s=1.8, ended_s=2.1)
    build.op(1, "recv", peer=0, at_s=2.2)
    assert whom(build.session) == {1: (0,)}
    build.op(0, "send", peer=1, at_s=2.4, ended_s=2.5)
    assert whom(build.session) == {}


def test_who_has_come_to_an_aside_is_not_waited_for() -> None:
    build = SessionBuilder(4)
    build.op(0, "monitored_barrier", seq=2)
    build.op(1, "monitored_barrier", seq=2)
    build.op(2, "monitored_barrier", seq=2, ended_s=3.0)
    build.op(3, "monitored_barrier", seq=1, ended_s=1.0)
    assert whom(build.session) == {0: (3,), 1: (3,)}


def test_who_may_be_through_an_aside_is_not_waited_for_in_a_living_session() -> None:
    build = SessionBuilder(4, is_live=True)
    build.op(0, "monitored_barrier", at_s=5.0)
    build.op(1, "recv", peer=0, at_s=4.0)
    build.op(2, "recv", peer=0, at_s=6.0)
    assert whom(build.session)[0] == (1, 3)
    barrier = (0, int(Aside.MONITORED_BARRIER))
    build.session.ranks[2].last_asides = {barrier: 0}
    assert whom(build.session)[0] == (1, 2, 3)
    build.session.ranks[2].last_asides = {barrier: 1}
    assert whom(build.session)[0] == (1, 3)


def test_who_makes_a_group_waits_for_any_that_does_not() -> None:
    build = SessionBuilder(3)
    build.op(0, "new_group", seq=4)
    build.op(1, "new_group", seq=2)
    (edge,) = waits_of(build.session)[0]
    assert edge.on == (2,)
    assert edge.is_any


def test_a_group_whose_members_are_not_known_proves_nothing_for_any() -> None:
    build = SessionBuilder(2)
    build.group("made elsewhere", [])
    build.op(0, "recv", group="made elsewhere")
    assert whom(build.session) == {}
