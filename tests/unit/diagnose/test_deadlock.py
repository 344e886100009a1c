import re

import pytest

from distdbg.record.format import Exit
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.deadlocks import deadlocks, only, ring_of_recvs
from tests.unit.diagnose.one_finder import texts

# ------------------------------------------------------------------------------------ messages


def test_two_ranks_that_both_receive_first_are_a_cycle() -> None:
    found = only(ring_of_recvs(2).session)
    assert found.ranks == (0, 1)
    assert found.what == (
        "ranks 0-1 are deadlocked (cycle of 2 ranks): all wait in recv at train.py:88: 0 <- 1 <- 0"
    )
    assert found.at_ns == 2 * 10**9
    assert found.group == "world"
    assert "isend" in found.advice
    assert texts(found) == [
        "rank 0 waits in recv from rank 1 on group 'world' at train.py:88 (step)",
        "rank 1 waits in recv from rank 0 on group 'world' at train.py:88 (step)",
    ]
    assert [(edge.rank, edge.on, edge.site) for edge in found.edges] == [
        (0, (1,), "train.py:88 (step)"),
        (1, (0,), "train.py:88 (step)"),
    ]


def test_ranks_that_receive_at_other_lines_have_left_out_a_message() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=1, tag=2, at_s=1, site="/job/farm.py:44 (collect)")
    build.op(1, "recv", peer=0, tag=1, at_s=1, site="/job/farm.py:19 (next_task)")
    assert "has left out a message" in only(build.session).advice


def test_two_ranks_that_both_send_first_are_a_cycle() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1)
    build.op(1, "send", peer=0)
    assert only(build.session).what == (
        "ranks 0-1 are deadlocked (cycle of 2 ranks): all wait in send: 0 -> 1 -> 0"
    )


def test_the_first_line_of_a_long_cycle_names_its_waiters_as_far_as_there_is_room() -> None:
    assert only(ring_of_recvs(4).session).what.endswith(": 0 <- 1 <- 2 <- 3 <- 0")
    long = only(ring_of_recvs(500).session).what
    assert re.search(r": 0 <- 1 <- 2 <- .* <- \.\.\. <- 0$", long)
    assert len(long) <= 120


@pytest.mark.parametrize("size", [3, 4, 50])
def test_cycles_of_messages_may_be_longer(size: int) -> None:
    found = only(ring_of_recvs(size).session)
    assert found.ranks == tuple(range(size))
    assert f"(cycle of {size} ranks): all wait in recv at train.py:88: 0 <- 1 <- 2 <-" in found.what


def test_a_long_chain_onto_a_core_are_victims() -> None:
    build = ring_of_recvs(2, world_size=40)
    for rank in range(2, 40):
        build.op(rank, "send", peer=rank - 1, at_s=5.0)
    found = only(build.session)
    assert found.ranks == (0, 1)
    assert found.victims == tuple(range(2, 40))


def test_two_deadlocks_are_two_findings() -> None:
    build = ring_of_recvs(2, world_size=4)
    build.op(2, "recv", peer=3)
    build.op(3, "recv", peer=2)
    assert [found.ranks for found in deadlocks(build.session)] == [(0, 1), (2, 3)]


def test_a_rank_that_receives_from_itself_waits_for_itself() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=0)
    assert only(build.session).what == "rank 0 waits for itself: recv from rank 0"


def test_messages_that_meet_are_no_deadlock() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=1, tag=3)
    build.op(1, "send", peer=0, tag=3)
    assert deadlocks(build.session) == []


def test_the_message_that_has_another_tag_is_shown() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1, tag=5, at_s=1.0)
    build.op(1, "recv", peer=0, tag=6, at_s=1.0)
    found = only(build.session)
    assert found.what == (
        "ranks 0-1 are deadlocked: rank 0 sent to rank 1 (tag 5); rank 1 waits for tag 6"
    )
    assert "same tags" in found.advice
    assert texts(found)[2:] == [
        "rank 0 sent to rank 1 (tag 5); rank 1 waits for a message from rank 0 (tag 6)"
    ]


def test_the_message_on_another_group_is_shown() -> None:
    build = SessionBuilder(2)
    build.group("pipe", [0, 1])
    build.op(0, "send", peer=1, group="pipe")
    build.op(1, "recv", peer=0)
    found = only(build.session)
    assert found.what == (
        "ranks 0-1 are deadlocked: rank 0 sent to rank 1 on group 'pipe'; "
        "rank 1 waits for it on group 'world'"
    )
    assert found.group == ""
    assert "same group" in found.advice


def test_the_second_message_of_a_pair_is_not_taken_for_the_first() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1, is_async=True)
    build.op(0, "send", peer=1, seq=2)
    build.op(1, "recv", peer=0, is_async=True)
    build.op(1, "recv", peer=0, tag=9)
    assert only(build.session).ranks == (0, 1)


# --------------------------------------------------------------------------------- collectives


def test_two_groups_in_another_order_are_a_cycle() -> None:
    build = SessionBuilder(2)
    build.group("a", [0, 1])
    build.group("b", [0, 1])
    build.op(0, "all_reduce", group="a", at_s=1.0)
    build.op(1, "all_gather", group="b", at_s=1.0)
    found = only(build.session)
    assert found.what == (
        "ranks 0-1 are deadlocked (cycle of 2 ranks): "
        "rank 0 in all_reduce #1 on group 'a', rank 1 in all_gather #1 on group 'b'"
    )
    assert found.advice.startswith("use the same groups in the same order on all ranks")
    assert texts(found)[2:] == [
        "rank 0 called all_reduce #1 on group 'a', rank 1 all_gather #1 on group 'b'; "
        "both are in both groups"
    ]


def test_three_groups_in_a_cycle() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.group(f"pair{rank}", sorted([rank, (rank + 1) % 3]))
        build.op(rank, "barrier", group=f"pair{rank}")
    found = only(build.session)
    assert found.ranks == (0, 1, 2)
    assert found.advice == "use the groups in the same order on all ranks"


def test_the_smallest_core_of_two_large_groups_is_two_ranks() -> None:
    build = SessionBuilder(64)
    build.group("dp", range(64))
    for rank in range(64):
        build.op(rank, "all_reduce", group="dp" if rank < 32 else "world")
    found = only(build.session)
    assert found.ranks == (0, 32)
    assert found.victims == (*range(1, 32), *range(33, 64))
    assert [one.ranks for one in found.evidence[:2]] == [tuple(range(32)), tuple(range(32, 64))]


def test_a_collective_against_a_message() -> None:
    build = SessionBuilder(3)
    build.op(0, "barrier")
    build.op(1, "recv", peer=0)
    build.op(2, "barrier")
    found = only(build.session)
    assert found.ranks == (0, 1)
    assert found.victims == (2,)
    assert "messages" in found.advice


def test_another_op_of_the_same_number_is_no_deadlock() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce")
    build.op(1, "broadcast")
    assert deadlocks(build.session) == []


def test_an_op_that_all_have_come_to_is_no_deadlock() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce")
    build.op(1, "all_reduce", is_async=True)
    build.op(1, "recv", peer=0)
    assert deadlocks(build.session) == []


def test_an_op_queued_behind_another_of_its_group_waits_for_those_of_the_other() -> None:
    build = SessionBuilder(3)
    build.op(0, "all_reduce", is_async=True)
    second = build.op(0, "all_reduce", is_async=True)
    build.wait(second, since_s=3.0, site="train.py:90 (step)")
    for _ in range(2):
        build.op(1, "all_reduce", is_async=True)
    build.op(1, "recv", peer=0)
    build.op(2, "recv", peer=0)
    found = only(build.session)
    assert found.ranks == (0, 2)
    assert found.victims == (1,)
    assert found.edges[0].site == "train.py:90 (step)"
    assert found.edges[0].since_ns == 3 * 10**9


def test_asides_are_waited_for_like_collectives() -> None:
    build = SessionBuilder(3)
    build.op(0, "monitored_barrier")
    build.op(1, "barrier")
    build.op(2, "barrier")
    found = only(build.session)
    assert found.ranks == (0, 1)
    assert (
        found.advice
        == "all ranks of the group have to call monitored_barrier: ranks 1-2 did not call it"
    )


def test_new_group_against_a_collective_of_all_others() -> None:
    build = SessionBuilder(3)
    build.op(0, "new_group")
    build.op(1, "barrier")
    build.op(2, "barrier")
    assert only(build.session).ranks == (0, 1, 2)


def test_new_group_may_be_one_of_few_ranks_only() -> None:
    build = SessionBuilder(3)
    build.op(0, "new_group")
    build.op(1, "barrier")
    assert deadlocks(build.session) == []


def test_new_group_waits_for_its_members_alone() -> None:
    build = SessionBuilder(4)
    for rank in (0, 1, 3):
        build.op(rank, "new_group", members=[(0, 2, 1), (3, 4, 1)])
    build.op(2, "all_reduce")
    assert deadlocks(build.session) == []


def test_new_group_waits_for_each_of_its_members() -> None:
    build = SessionBuilder(4)
    for rank in (0, 3):
        build.op(rank, "new_group", members=[(0, 2, 1), (3, 4, 1)])
    build.op(1, "all_reduce")
    found = only(build.session)
    assert found.ranks == (0, 1)
    assert found.victims == (3,)
    assert "also those that are to be no members of the new one: rank" in found.advice


def test_who_is_no_member_of_a_new_group_waits_for_nobody() -> None:
    build = SessionBuilder(3)
    build.op(0, "new_group", members=[(0, 0, 1)])
    build.op(1, "barrier")
    build.op(2, "barrier")
    assert deadlocks(build.session) == []


def test_who_has_made_the_group_has_come_whatever_its_number() -> None:
    build = SessionBuilder(2)
    build.op(0, "new_group", seq=4, members=[(0, 2, 1)])
    pair = build.group("pair", [0, 1])
    del build.session.ranks[0].progress[pair]  # it is about to come out of new_group
    build.op(1, "barrier", group="pair")
    assert deadlocks(build.session) == []


# ----------------------------------------------------------------------------------- any source


def test_all_that_receive_from_any_are_a_knot() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "recv")
    found = only(build.session)
    assert found.ranks == (0, 1, 2)
    assert found.what == "ranks 0-2 are deadlocked: all wait in recv from any rank"
    assert "any rank" in found.advice
    assert texts(found)[0] == (
        "rank 0 waits in recv from any rank on group 'world' for any of ranks 1-2"
    )


def test_who_receives_from_any_has_a_way_out_while_one_may_send() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv")
    build.op(1, "recv", peer=0)
    assert deadlocks(build.session) == []


def test_who_left_is_no_way_out_for_a_recv_from_any() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv")
    build.op(1, "recv", peer=0)
    build.exit(2, Exit.RETURNED, at_s=1.0)
    assert only(build.session).ranks == (0, 1)


def test_who_died_ends_a_recv_from_any_with_an_error() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv")
    build.op(1, "recv", peer=0)
    build.end(2, at_s=1.0, cause="signal", signal=9)
    assert deadlocks(build.session) == []


def test_a_message_on_its_way_is_a_way_out_for_a_recv_from_any() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv")
    build.op(1, "send", peer=0)
    build.op(2, "recv", peer=0)
    assert deadlocks(build.session) == []


# ------------------------------------------------------------------------- threads, async, others


def never_sent(*, sends_there_too: bool = False) -> SessionBuilder:
    """Rank 0 collects a message of each; rank 2 goes on to the barrier without sending one."""
    build = SessionBuilder(4)
    build.op(1, "send", peer=0, tag=1, at_s=1, ended_s=2, site="/job/x.py:5 (send_stats)")
    build.op(0, "recv", peer=1, tag=1, at_s=1, ended_s=2, site="/job/x.py:8 (collect)")
    if sends_there_too:
        build.op(2, "send", peer=0, tag=9, at_s=1, ended_s=2, site="/job/x.py:5 (send_stats)")
    build.op(0, "recv", peer=2, tag=2, at_s=3, site="/job/x.py:8 (collect)")
    for rank in (1, 2):
        build.op(rank, "barrier", at_s=3, site="/job/x.py:11 (main)")
    build.op(3, "send", peer=0, tag=3, at_s=3, site="/job/x.py:5 (send_stats)")
    return build


def test_a_message_that_was_never_sent_is_the_cause_where_another_rank_sent_its_own() -> None:
    root = only(never_sent().session, causes=(2,))
    assert root.what == (
        "ranks 0,2 are deadlocked: rank 0 waits for a message (tag 2) that rank 2 never sent; "
        "rank 3 sends its own at x.py:5"
    )
    assert root.victims == (0, 1, 3)
    assert root.advice == "see why rank 2 does not send at x.py:5, as rank 3 does"
    said = (
        "rank 2 never sent rank 0 the message (tag 2); rank 3 sends its own at x.py:5 (send_stats)"
    )
    assert said in texts(root)


def test_a_running_job_and_its_record_name_the_same_rank_that_sends_its_own() -> None:
    live = SessionBuilder(4, is_live=True)  # holds only what is in flight
    live.op(0, "recv", peer=2, tag=2, at_s=3, site="/job/x.py:8 (collect)")
    for rank in (1, 2):
        live.op(rank, "barrier", at_s=3, site="/job/x.py:11 (main)")
    live.op(3, "send", peer=0, tag=3, at_s=3, site="/job/x.py:5 (send_stats)")
    assert only(live.session, causes=(2,)).what == only(never_sent().session, causes=(2,)).what


def test_where_none_is_in_flight_the_lowest_rank_that_has_sent_is_named() -> None:
    build = SessionBuilder(4)
    for rank in (3, 1):
        build.op(rank, "send", peer=0, tag=rank, at_s=1, ended_s=2, site="/job/x.py:5 (f)")
        build.op(0, "recv", peer=rank, tag=rank, at_s=1, ended_s=2, site="/job/x.py:8 (g)")
    build.op(0, "recv", peer=2, tag=2, at_s=3, site="/job/x.py:8 (g)")
    build.op(2, "barrier", at_s=3, site="/job/x.py:11 (main)")
    assert "; rank 1 sent its own at x.py:5" in only(build.session, causes=(2,)).what


def test_where_the_rank_has_sent_from_that_line_nothing_is_known_of_the_message() -> None:
    root = only(never_sent(sends_there_too=True).session)
    assert "never sent" not in root.what
