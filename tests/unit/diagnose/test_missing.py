"""Ranks that others wait for, and that will not come."""

from dataclasses import replace
from typing import Any

import pytest

from distdbg.diagnose.find import deadlock, missing, stall, stuck
from distdbg.diagnose.finding import Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import GroupProgress, RecordedProblem
from distdbg.diagnose.verdict import diagnose
from distdbg.diagnose.waits import find_waits
from distdbg.record.format import Exit
from distdbg.record.known_marks import EXIT_CALL
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import find, find_one, texts, trained, waiting_for_0


def test_who_left_by_sys_exit_is_told_with_the_line() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce", at_s=2, site="/job/a.py:9 (main)")
    note = RecordedProblem(
        type=EXIT_CALL, what="called sys.exit(0)", details=("/job/parts.py:17 (skip)",)
    )
    build.session.ranks[1].found = (note,)
    build.exit(1, Exit.RETURNED, at_s=1)
    root = diagnose(build.session).root
    assert root is not None
    assert root.evidence[0].text == "rank 1 called sys.exit(0) at parts.py:17 (skip)"
    assert root.advice == (
        "see why parts.py:17 ends the program of rank 1: all ranks have to decide that alike"
    )


@pytest.mark.parametrize("has_returned", [True, False])
def test_a_sys_exit_that_was_caught_is_not_the_end_of_a_rank(has_returned: bool) -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=2, ended_s=2.5, site="/job/a.py:8 (main)")
    build.op(0, "all_reduce", at_s=4, site="/job/a.py:9 (main)")
    at_s = 1 if has_returned else 2.7
    where = ("/job/a.py:6 (main)",)
    build.found(1, EXIT_CALL, "called sys.exit(0)", at_s=at_s, details=where)
    if has_returned:
        build.exit(1, Exit.RETURNED, at_s=3)
    else:  # exec took the place of the program
        build.end(1, at_s=3, cause="exited", exit_code=0)
    root = diagnose(build.session).root
    assert root is not None
    how = "returned" if has_returned else "exited"
    assert root.what.startswith(f"rank 1 {how} ")
    assert not any("sys.exit" in text or "a.py:6" in text for text in (*texts(root), root.advice))


def test_the_line_of_an_os_exit_with_code_0_is_told_and_advised() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        for at in range(2):
            build.op(rank, "all_reduce", at_s=1 + at, ended_s=1.5 + at, site="/job/a.py:9 (main)")
    for rank in (0, 2):
        build.op(rank, "all_reduce", at_s=4, site="/job/a.py:9 (main)")
    note = RecordedProblem(
        type=EXIT_CALL, what="called os._exit(0)", details=("/job/a.py:7 (main)",)
    )
    build.session.ranks[1].found = (note,)
    build.end(1, at_s=3, cause="exited", exit_code=0)
    root = diagnose(build.session).root
    assert root is not None
    assert root.what.startswith("rank 1 exited while ranks 0,2 ")
    assert root.evidence[0].text == "rank 1 called os._exit(0) at a.py:7 (main)"
    assert any("skipped one of them, or ended early at a.py:7" in text for text in texts(root))
    assert root.advice.startswith("see why a.py:7 ends the program of rank 1")


def test_the_error_that_was_handled_at_a_sys_exit_is_told() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce", at_s=2, site="/job/a.py:9 (main)")
    how = "while it handled ValueError: no data at load.py:3 (read)"
    note = RecordedProblem(
        type=EXIT_CALL, what="called sys.exit(1)", details=("/job/a.py:7 (main)",), how=how
    )
    build.session.ranks[1].found = (note,)
    build.exit(1, Exit.RETURNED, at_s=1)
    root = diagnose(build.session).root
    assert root is not None
    assert root.evidence[0].text == f"rank 1 called sys.exit(1) at a.py:7 (main) {how}"


def test_a_rank_that_returned_while_others_wait_is_missing() -> None:
    build = waiting_for_0()
    build.exit(0, Exit.RETURNED, at_s=87)
    finding = find_one(missing, build)
    assert (
        finding.what == "rank 0 returned while ranks 1-3 wait for it in barrier #2 on group 'world'"
    )
    assert (finding.ranks, finding.victims, finding.severity) == ((0,), (1, 2, 3), Severity.ERROR)
    assert (finding.group, finding.seq, finding.at_ns) == ("world", 2, 87 * 10**9)
    assert texts(finding) == [
        "rank 0 returned from its program",
        "rank 0 last called all_reduce #1 on group 'world' at train.py:80 (step)",
        "ranks 1-3 wait in barrier #2 on group 'world' at train.py:90 (main)",
    ]
    assert finding.numbers == {"waiting": 3, "waited_s": 12, "behind": 1}
    assert find(stall, build) == []


@pytest.mark.parametrize(
    ("how", "reported"),
    [(Exit.LEFT, "left"), (None, "exited"), ("closed", "destroyed")],
)
def test_a_rank_that_left_or_exited_with_code_0_is_missing(how: Any, reported: str) -> None:
    build = waiting_for_0()
    if how is None:
        build.end(0, at_s=80, cause="exited", exit_code=0)
    elif how == "closed":
        build.session.ranks[0].progress[0] = GroupProgress(issued_seq=1, ended_seq=1, closed_ns=80)
    else:
        build.exit(0, how, at_s=80)
    finding = find_one(missing, build)
    assert finding.what.startswith(f"rank 0 {reported}")
    assert finding.ranks == (0,)


@pytest.mark.parametrize(("has_left", "did"), [(True, "left: it called"), (False, "called")])
def test_the_line_that_destroyed_the_group_is_named(has_left: bool, did: str) -> None:
    build = waiting_for_0()
    build.session.ranks[0].progress[0] = GroupProgress(
        issued_seq=1, ended_seq=1, closed_ns=80 * 10**9, closed_at="train.py:95 (main)"
    )
    if has_left:
        build.exit(0, Exit.LEFT, at_s=80)
    finding = find_one(missing, build)
    assert texts(finding)[0] == f"rank 0 {did} destroy_process_group at train.py:95 (main)"
    assert "see why rank 0 left at train.py:95 without making this call" in finding.advice


@pytest.mark.parametrize("is_live", [True, False])
def test_a_rank_that_waits_for_those_whose_group_it_destroyed_is_missing(is_live: bool) -> None:
    build = trained(3, is_live=is_live)
    build.group("evaluation", (0, 1, 2))
    for rank in (0, 1):
        build.op(rank, "all_reduce", group="evaluation", at_s=80)
    build.session.ranks[2].progress[1] = GroupProgress(issued_seq=0, ended_seq=0, closed_ns=81)
    build.op(2, "barrier", at_s=82)
    finding = find_one(missing, build)
    assert finding.what.startswith("rank 2 destroyed the group while ranks 0-1 wait")
    assert (finding.ranks, finding.victims, finding.group) == ((2,), (0, 1), "evaluation")
    assert find(deadlock, build) == find(stall, build) == []


def test_who_waits_for_that_rank_elsewhere_is_a_victim_and_not_named_with_the_others() -> None:
    build = trained(4)
    build.group("evaluation", (0, 1, 2))
    for rank in (0, 1):
        build.op(rank, "all_reduce", group="evaluation", at_s=80)
    build.session.ranks[2].progress[1] = GroupProgress(issued_seq=0, ended_seq=0, closed_ns=81)
    build.op(2, "recv", peer=0, at_s=82)
    build.op(3, "recv", peer=2, at_s=82)
    finding = find_one(missing, build)
    assert "while ranks 0-1 waited for it in all_reduce #1" in finding.what
    assert (finding.ranks, finding.victims) == ((2,), (0, 1, 3))
    assert find(deadlock, build) == []


def closed(build: SessionBuilder, rank: int, group: int = 1) -> None:
    """The rank has destroyed the group."""
    far = GroupProgress(issued_seq=0, ended_seq=0, closed_ns=81)
    build.session.ranks[rank].progress[group] = far


@pytest.mark.parametrize("recv_from", [0, None])
def test_a_rank_that_left_and_is_late_elsewhere_is_told_with_each(recv_from: int | None) -> None:
    build = trained(3, is_live=False)
    build.group("evaluation", (1, 2))
    build.op(1, "all_reduce", group="evaluation", at_s=80)
    closed(build, 2)
    build.op(0, "recv", peer=2, at_s=82)
    if recv_from is not None:
        build.op(2, "recv", peer=recv_from, at_s=83)
    found = {finding.group: finding.what for finding in find(missing, build)}
    assert found["evaluation"].startswith("rank 2 destroyed the group while rank 1 waited for it")
    # Who waits itself is not late.
    assert ("world" in found) == (recv_from is None)


def test_who_else_has_not_come_is_told_beside_who_left() -> None:
    build = trained(4, is_live=False)
    build.group("evaluation", range(4))
    build.op(0, "all_reduce", group="evaluation", at_s=80)
    closed(build, 1)
    what = [finding.what for finding in find(missing, build)]
    assert any(one.startswith("rank 1 destroyed the group while rank 0") for one in what)
    assert any(one.startswith("ranks 2-3 never called all_reduce #1") for one in what)
    build.seen(2, RankState.HOLDS_GIL, since_s=5)
    assert find_one(stuck, build).victims == (0,)


@pytest.mark.parametrize("is_guess", [False, True])
def test_of_several_works_the_one_that_somebody_left_ends_the_wait(is_guess: bool) -> None:
    build = trained(4)
    build.group("g1", (0, 2))
    build.group("g2", (0, 3))
    for group in ("g1", "g2"):
        build.wait(build.op(0, "all_reduce", group=group, is_async=True, at_s=80), since_s=81)
    log = build.session.ranks[0]
    log.work_waits = tuple(replace(wait, is_guess=is_guess) for wait in log.work_waits)
    closed(build, 3, group=2)
    build.op(2, "recv", peer=0, at_s=82)
    [edge] = find_waits(build.session, match(build.session))[0]
    assert set(edge.left) <= set(edge.on)
    if is_guess:  # it waited for the first of them, as a rule
        assert (edge.on, edge.left) == ((2,), ())
        assert find_one(deadlock, build).ranks == (0, 2)
    else:
        assert (edge.on, edge.left) == ((3,), (3,))
        assert find(deadlock, build) == []
        assert find_one(missing, build).ranks == (3,)


@pytest.mark.parametrize("leavers", [(1,), (1, 2)])
def test_a_recv_from_any_ends_when_all_others_have_destroyed_the_group(
    leavers: tuple[int, ...],
) -> None:
    build = trained(3)
    build.group("trio", (0, 1, 2))
    build.op(0, "recv", group="trio", at_s=80)
    for rank in (1, 2):
        build.op(rank, "recv", peer=0, at_s=82)
    for rank in leavers:
        closed(build, rank)
    is_over = leavers == (1, 2)
    assert bool(find(deadlock, build)) is not is_over
    assert bool(find(missing, build)) is is_over


def test_a_message_to_who_has_destroyed_the_group_is_no_cycle() -> None:
    build = trained(2)
    build.group("pair", (0, 1))
    build.op(0, "recv", group="pair", peer=1, at_s=80)
    build.session.ranks[1].progress[1] = GroupProgress(issued_seq=0, ended_seq=0, closed_ns=81)
    build.op(1, "recv", peer=0, at_s=82)
    assert find_one(missing, build).ranks == (1,)
    assert find(deadlock, build) == []


def test_a_rank_that_died_is_left_to_the_finder_of_the_dead() -> None:
    build = waiting_for_0()
    build.end(0, at_s=80, cause="signal", signal=9)
    assert find(missing, build) == []


def test_in_a_record_that_is_all_there_is_a_rank_that_never_called_it_is_missing() -> None:
    build = waiting_for_0(is_live=False)
    build.seen(0, RankState.RUNNING, since_s=5, site="/job/save.py:7 (save)")
    finding = find_one(missing, build)
    assert "rank 0 was in save.py:7 (save)" in texts(finding)
    assert finding.what == (
        "rank 0 never called barrier #2 on group 'world', in which ranks 1-3 waited for 12 s"
    )
    assert "rank 0 is 1 op behind on group 'world': its last op there is #1" in texts(finding)


def test_a_message_that_nobody_came_for_is_told_as_such() -> None:
    build = trained(2)
    build.op(0, "recv", peer=1, at_s=90)
    finding = find_one(missing, build)
    assert finding.what.startswith(
        "rank 1 never sent to rank 0, waiting in recv from rank 1 on group 'world' for 10 s"
    )
    assert "rank 1 has not reached it" in texts(finding)
    assert finding.seq == 0


def test_a_chain_of_waits_is_followed_to_its_end() -> None:
    build = trained(4)
    build.group("a", (0, 1))
    build.group("b", (1, 2))
    build.group("c", (2, 3))
    build.op(0, "barrier", group="a", at_s=2)
    build.op(1, "barrier", group="b", at_s=3)
    build.op(2, "barrier", group="c", at_s=4)
    build.exit(3, Exit.RETURNED, at_s=3)
    finding = find_one(missing, build)
    assert (finding.ranks, finding.victims, finding.group) == ((3,), (0, 1, 2), "c")
    assert "has called" not in texts(finding)[0]


def test_a_rank_of_which_nothing_is_known_is_not_blamed() -> None:
    build = trained(4)
    build.lose(3)
    for rank in range(3):
        build.op(rank, "barrier", at_s=88)
    finding = find_one(missing, build)
    assert finding.what == (
        "nothing is known of rank 3, for which ranks 0-2 waited in barrier #2 on group 'world'"
    )
    assert (finding.ranks, finding.victims, finding.severity) == ((), (0, 1, 2), Severity.ERROR)
    build.session.is_live = True
    assert find_one(missing, build).severity is Severity.NOTE


def test_of_a_recv_from_any_those_who_are_gone_are_not_needed() -> None:
    build = trained(3)
    build.op(0, "recv", at_s=88)
    build.exit(1, Exit.RETURNED, at_s=80)
    assert find_one(missing, build).ranks == (2,)


def test_ranks_missing_in_different_ways_are_told_apart() -> None:
    build = trained(4)
    build.op(3, "barrier", at_s=88)
    build.exit(0, Exit.RETURNED, at_s=80)
    build.exit(1, Exit.RETURNED, at_s=81)
    found = find(missing, build)
    assert [finding.ranks for finding in found] == [(0, 1), (2,)]
    assert "while rank 3 waited for them in" in found[0].what


def test_who_returned_and_did_not_send_is_asked_for_the_message() -> None:
    build = SessionBuilder(2)
    build.op(0, "recv", peer=1, at_s=1)
    build.exit(1, Exit.RETURNED, at_s=2)
    root = diagnose(build.session).root
    assert root is not None
    assert root.advice == "see why rank 1 ended without sending the message"
