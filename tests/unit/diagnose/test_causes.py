"""Ranks that died, failed, are missing, stuck or busy: each finder by itself."""

import json
from dataclasses import replace
from typing import Any

import pytest

from distdbg.diagnose.find import dead, deadlock, failed_op, missing, stall, stopped, stuck
from distdbg.diagnose.finding import Finding, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Activity, Progress
from distdbg.diagnose.waits import find_waits
from distdbg.record.durations import duration_text
from distdbg.record.entries import Frame
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from distdbg.testing.session_builder import SessionBuilder


def find(finder: Any, build: SessionBuilder) -> list[Finding]:
    matched = match(build.session)
    found: list[Finding] = finder.find(build.session, matched, find_waits(build.session, matched))
    return found


def find_one(finder: Any, build: SessionBuilder) -> Finding:
    (finding,) = find(finder, build)
    return finding


def texts(finding: Finding) -> list[str]:
    return [line.text for line in finding.evidence]


def error(type: str, what: str, **facts: Any) -> str:
    return json.dumps({"type": type, "what": what, **facts})


def trained(world_size: int, *, is_live: bool = False) -> SessionBuilder:
    """All ranks have done one op."""
    build = SessionBuilder(world_size, is_live=is_live)
    for rank in range(world_size):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.1, site="/job/train.py:80 (step)")
    return build


def waiting_for_0(*, is_live: bool = True, at_s: float = 88) -> SessionBuilder:
    build = trained(4, is_live=is_live)
    for rank in (1, 2, 3):
        build.op(rank, "barrier", at_s=at_s, site="/job/train.py:90 (main)")
    return build


# ------------------------------------------------------------------------------------------ dead


@pytest.mark.parametrize(
    ("end", "told", "advice"),
    [
        ({"cause": "signal", "signal": 9}, "was killed by SIGKILL", "not the kernel's OOM killer"),
        ({"cause": "signal", "signal": 11}, "was killed by SIGSEGV", "native code crashed"),
        (
            {"cause": "signal", "signal": 6, "core_dumped": True},
            "was killed by SIGABRT (core dumped)",
            "the core dump",
        ),
        (
            {"cause": "signal", "signal": 10},
            "was killed by SIGUSR1",
            "SIGUSR1 came from outside",
        ),
        ({"cause": "oom", "signal": 9}, "was killed for memory", "more memory"),
        (
            {"cause": "exited", "exit_code": 3},
            "exited with code 3",
            "last lines of stderr of rank 2",
        ),
        ({"cause": "unknown"}, "is gone; how it ended is unknown", "stderr"),
    ],
)
def test_a_dead_rank_is_told_with_how_it_died_and_what_to_do(
    end: dict[str, Any], told: str, advice: str
) -> None:
    build = trained(4)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=2, site="/job/train.py:80 (step)")
    build.end(2, at_s=2.5, **end)
    finding = find_one(dead, build)
    assert finding.what.startswith(f"rank 2 {told}")
    assert finding.what.endswith("while ranks 0-1 waited for it in all_reduce #2 on group 'world'")
    assert finding.severity is Severity.ERROR
    assert (finding.ranks, finding.victims, finding.at_ns) == ((2,), (0, 1), 2_500_000_000)
    assert advice in finding.advice
    assert texts(finding)[0].endswith("(host n01, pid 1002)")
    assert (
        texts(finding)[1]
        == "rank 2 last called all_reduce #1 on group 'world' at train.py:80 (step)"
    )


def test_an_exception_of_its_own_is_the_cause_and_those_who_lost_it_are_victims() -> None:
    build = trained(3)
    build.exit(1, Exit.RAISED, at_s=2, what="ValueError: no data", where="/job/data.py:7 (load)")
    build.end(1, at_s=2.4, cause="exited", exit_code=1)
    for rank, at_s in ((0, 2.1), (2, 2.2)):
        lost = error("PeerLost", "rank 1 raised", ranks=[1], how="raised ValueError: no data")
        build.op(rank, "barrier", at_s=1.5, ended_s=at_s, status=Status.PEER_LOST, error=lost)
        build.exit(rank, Exit.RAISED, at_s=at_s, what="PeerLost: rank 1 raised")
        build.end(rank, at_s=2.3, cause="exited", exit_code=1)
    finding = find_one(dead, build)
    assert finding.what == (
        "rank 1 raised ValueError: no data at data.py:7 (load)"
        " while ranks 0,2 waited for it in barrier #2 on group 'world'"
    )
    assert (finding.ranks, finding.victims, finding.at_ns) == ((1,), (0, 2), 2_000_000_000)
    assert finding.evidence[0].site == "data.py:7 (load)"
    assert "the process of rank 1 exited with code 1" in texts(finding)
    assert "rank 0: PeerLost: rank 1 raised" in texts(finding)
    assert "data.py:7 (load)" in finding.advice


def test_several_ranks_with_one_reason_are_one_finding() -> None:
    build = trained(3)
    for rank in (2, 0):
        build.exit(rank, Exit.RAISED, at_s=3 - rank, what="OSError: disk full", where="a.py:1 (f)")
    finding = find_one(dead, build)
    assert (finding.ranks, finding.at_ns) == ((0, 2), 1_000_000_000)
    assert finding.what == "ranks 0,2 raised OSError: disk full at a.py:1 (f)"


def test_ranks_that_exited_with_a_code_and_no_word_are_each_their_own() -> None:
    build = trained(2)
    for rank in range(2):
        build.end(rank, at_s=2, cause="exited", exit_code=1)
    assert [finding.ranks for finding in find(dead, build)] == [(0,), (1,)]


def test_ranks_that_one_kill_has_ended_are_one_finding_with_what_each_was_in() -> None:
    build = trained(4)
    for rank in (0, 1, 2):
        build.op(rank, "barrier", at_s=2, site="train.py:9 (run)")
    for rank in (2, 0, 3, 1):
        build.end(rank, at_s=5 + rank / 100, cause="signal", signal=9)
    finding = find_one(dead, build)
    assert finding.what == "ranks 0-3 were killed by SIGKILL"
    assert texts(finding)[0] == "ranks 0-3 were killed by SIGKILL, the last 30 ms after the first"
    assert texts(finding)[1].startswith("ranks 0-2 were in barrier #")
    assert finding.advice.startswith("who sent SIGKILL is unknown: ")


def test_a_signal_seconds_after_another_is_its_own() -> None:
    build = trained(4)
    build.end(1, at_s=5, cause="signal", signal=11)
    build.end(2, at_s=9, cause="signal", signal=11)
    assert [finding.ranks for finding in find(dead, build)] == [(1,), (2,)]


def test_sys_exit_is_told_with_its_code_and_words() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="SystemExit: bad config")
    build.end(0, at_s=2, cause="exited", exit_code=1)
    assert find_one(dead, build).what == "rank 0 exited with code 1: bad config"


@pytest.mark.parametrize(
    "type", ["OpTimeout", "PeerLost", "MismatchError", "NonFiniteError", "JobAborted"]
)
def test_a_rank_that_gives_up_because_of_others_is_no_dead_rank(type: str) -> None:
    build = trained(2)
    build.op(
        0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT, error=error(type, "w", ranks=[1])
    )
    build.end(0, at_s=3.2, cause="exited", exit_code=1)  # it caught the error, and went
    build.exit(1, Exit.RAISED, at_s=9, what=f"{type}: it")
    assert find(dead, build) == []


def test_a_watchdog_that_aborts_the_process_after_a_timeout_is_no_cause() -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT)
    build.end(0, at_s=3.2, cause="signal", signal=6)
    assert find(dead, build) == []


def test_an_error_that_was_caught_long_ago_does_not_excuse_a_rank() -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT)
    build.op(0, "barrier", at_s=4, ended_s=5)
    build.end(0, at_s=6, cause="exited", exit_code=1)
    assert find_one(dead, build).ranks == (0,)


def test_ranks_that_the_launcher_ended_are_no_cause() -> None:
    build = trained(3)
    build.end(0, at_s=2, cause="signal", signal=11)
    build.end(1, at_s=2.1, cause="signal", signal=15, was_asked=True)
    build.exit(2, Exit.RAISED, at_s=2.2, what="ValueError: on the way out")
    build.end(2, at_s=2.3, cause="signal", signal=9, was_asked=True)
    assert find_one(dead, build).ranks == (0,)


def test_a_rank_that_failed_before_the_launcher_ended_it_is_the_cause() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="ValueError: no data")
    build.end(0, at_s=9, cause="signal", signal=15, was_asked=True)
    build.op(1, "barrier", at_s=1.5, ended_s=2.5, status=Status.PEER_LOST)
    build.end(1, at_s=2.6, cause="exited", exit_code=1)
    assert find_one(dead, build).what == "rank 0 raised ValueError: no data"


def test_sigterm_at_one_rank_of_many_is_a_dead_rank() -> None:
    build = trained(2)
    build.end(0, at_s=2, cause="signal", signal=15)
    build.op(1, "barrier", at_s=1.5, ended_s=2.5, status=Status.PEER_LOST)
    build.end(1, at_s=2.6, cause="exited", exit_code=1)
    assert find_one(dead, build).what.startswith("rank 0 was killed by SIGTERM")
    assert find(stopped, build) == []


def test_a_rank_that_others_lost_and_of_which_nothing_is_known_is_dead() -> None:
    build = trained(4)
    build.lose(3)
    lost = error("PeerLost", "rank 3 closed it", ranks=[3], how="the connection was reset")
    for rank in (0, 1):
        build.op(rank, "barrier", at_s=2, ended_s=3, status=Status.PEER_LOST, error=lost)
    build.op(2, "barrier", at_s=2)
    finding = find_one(dead, build)
    assert finding.what == (
        "rank 3 was lost by ranks 0-1: the connection was reset; nobody saw how its process ended"
    )
    assert (finding.ranks, finding.victims) == ((3,), (0, 1, 2))


def test_a_lost_rank_whose_own_error_is_known_is_not_dead() -> None:
    build = trained(2)
    build.op(
        0,
        "barrier",
        at_s=2,
        ended_s=3,
        status=Status.PEER_LOST,
        error=error("PeerLost", "rank 1 is gone", ranks=[1]),
    )
    build.op(1, "barrier", group="world", at_s=2, ended_s=2.5, status=Status.TIMEOUT)
    assert find(dead, build) == []


# --------------------------------------------------------------------------------------- missing


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
    ("how", "told"),
    [(Exit.LEFT, "left"), (None, "exited"), ("closed", "destroyed")],
)
def test_a_rank_that_left_or_exited_with_code_0_is_missing(how: Any, told: str) -> None:
    build = waiting_for_0()
    if how is None:
        build.end(0, at_s=80, cause="exited", exit_code=0)
    elif how == "closed":
        build.session.ranks[0].progress[0] = Progress(issued_seq=1, ended_seq=1, closed_ns=80)
    else:
        build.exit(0, how, at_s=80)
    finding = find_one(missing, build)
    assert finding.what.startswith(f"rank 0 {told}")
    assert finding.ranks == (0,)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_rank_that_waits_for_those_whose_group_it_destroyed_is_missing(is_live: bool) -> None:
    build = trained(3, is_live=is_live)
    build.group("evaluation", (0, 1, 2))
    for rank in (0, 1):
        build.op(rank, "all_reduce", group="evaluation", at_s=80)
    build.session.ranks[2].progress[1] = Progress(issued_seq=0, ended_seq=0, closed_ns=81)
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
    build.session.ranks[2].progress[1] = Progress(issued_seq=0, ended_seq=0, closed_ns=81)
    build.op(2, "recv", peer=0, at_s=82)
    build.op(3, "recv", peer=2, at_s=82)
    finding = find_one(missing, build)
    assert "while ranks 0-1 waited for it in all_reduce #1" in finding.what
    assert (finding.ranks, finding.victims) == ((2,), (0, 1, 3))
    assert find(deadlock, build) == []


def closed(build: SessionBuilder, rank: int, group: int = 1) -> None:
    """The rank has destroyed the group."""
    far = Progress(issued_seq=0, ended_seq=0, closed_ns=81)
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


def test_a_message_to_who_has_destroyed_the_group_is_no_circle() -> None:
    build = trained(2)
    build.group("pair", (0, 1))
    build.op(0, "recv", group="pair", peer=1, at_s=80)
    build.session.ranks[1].progress[1] = Progress(issued_seq=0, ended_seq=0, closed_ns=81)
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


# ----------------------------------------------------------------------------------- stall, stuck


def test_a_checkpoint_by_one_rank_is_a_stall_with_a_name() -> None:
    build = waiting_for_0()
    build.seen(0, RankState.RUNNING, since_s=88, site="/job/save.py:7 (save)")
    finding = find_one(stall, build)
    assert finding.what == (
        "ranks 1-3 wait for rank 0, running in save() at save.py:7 for 12 s, in barrier #2 on group 'world'"
    )
    assert finding.severity is Severity.NOTE
    assert (finding.ranks, finding.victims) == ((0,), (1, 2, 3))
    assert finding.evidence[0].site == "save.py:7 (save)"
    assert find(missing, build) == find(stuck, build) == find(dead, build) == []


def test_without_an_agent_a_stall_has_the_last_op_and_the_time_since() -> None:
    build = waiting_for_0()
    finding = find_one(stall, build)
    assert finding.what.startswith("ranks 1-3 wait for rank 0, in its own code for 1 min 39 s")
    assert "rank 0 is in its own code; no agent has looked closer" in texts(finding)


def test_a_stall_by_a_stack_alone_and_by_several_ranks() -> None:
    build = trained(4, is_live=True)
    build.op(3, "barrier", at_s=88)
    build.op(3, "barrier", at_s=89, seq=5)
    build.seen(0, RankState.RUNNING, since_s=90, stack=(Frame("/job/a.py", 3, "g"),))
    finding = find(stall, build)[0]
    assert finding.ranks == (0, 1, 2)
    assert "in their own code for 10 s and 4 ops behind" in finding.what
    assert finding.evidence[0].site == "a.py:3 (g)"


def test_a_rank_that_has_done_nothing_yet_may_be_busy() -> None:
    build = SessionBuilder(2, is_live=True)
    build.op(0, "barrier", at_s=90)
    assert find_one(stall, build).what == (
        "rank 0 waits for rank 1, in its own code, in barrier #1 on group 'world'"
    )


@pytest.mark.parametrize(
    ("state", "severity", "alone"),
    [
        (RankState.STOPPED, Severity.ERROR, Severity.WARNING),
        (RankState.TRACED, Severity.ERROR, Severity.WARNING),
        (RankState.HOLDS_GIL, Severity.WARNING, Severity.WARNING),
        (RankState.BUSY, Severity.WARNING, Severity.NOTE),
        (RankState.BLOCKED_IO, Severity.WARNING, Severity.WARNING),
        (RankState.ASLEEP, Severity.WARNING, Severity.NOTE),
    ],
)
def test_a_stuck_rank_is_an_error_only_where_that_is_proven(
    state: RankState, severity: Severity, alone: Severity
) -> None:
    build = waiting_for_0(at_s=60)
    build.seen(
        0,
        state,
        since_s=60,
        why="the reason",
        site="/job/a.py:7 (f)",
        stack=(Frame("/job/a.py", 7, "f"), Frame("/job/b.py", 3, "main")),
    )
    finding = find_one(stuck, build)
    assert (finding.ranks, finding.victims) == ((0,), (1, 2, 3))
    assert finding.severity is severity
    assert " in f() at a.py:7 for 40 s" in finding.what
    assert "; ranks 1-3 wait for it in barrier #2" in finding.what
    assert "rank 0: the reason" in texts(finding)
    assert finding.advice
    assert "rank 0 called f() at b.py:3 (main)" in texts(finding)
    assert find(missing, build) == find(stall, build) == []
    nobody_waits = trained(2, is_live=True)
    nobody_waits.seen(1, state, since_s=60)
    assert find_one(stuck, nobody_waits).severity is alone


def test_a_busy_rank_is_a_note_then_a_warning_and_is_compared_with_its_past() -> None:
    for at_s, finder, severity in ((92, stall, Severity.NOTE), (80, stuck, Severity.WARNING)):
        build = waiting_for_0(at_s=at_s)
        build.seen(0, RankState.BUSY, since_s=at_s, why="uses its CPU", site="/job/x.py:7 (train)")
        finding = find_one(finder, build)
        assert finding.severity is severity
        assert f"busy in train() at x.py:7 for {duration_text(100 - at_s)} on CPU" in finding.what
        assert "look at the condition" not in finding.advice


def test_a_loop_that_looks_like_either_from_look_to_look_is_as_old_as_its_function() -> None:
    build = waiting_for_0(at_s=60)
    build.session.ranks[0].activities = tuple(
        Activity(state=state, since_ns=since_s * 10**9, site=f"/job/x.py:{since_s} ({function})")
        for since_s, state, function in (
            (50, RankState.ASLEEP, "load"),
            (70, RankState.BUSY, "train"),
            (80, RankState.HOLDS_GIL, "train"),
        )
    )
    build.seen(0, RankState.BUSY, since_s=97, site="/job/x.py:7 (train)")
    finding = find_one(stuck, build)
    assert "busy in train() at x.py:7 for 30 s on CPU" in finding.what


def test_a_gap_that_the_rank_came_out_of_before_is_no_reason_to_warn() -> None:
    build = waiting_for_0(at_s=60)
    build.op(0, "recv", group="world", peer=1, at_s=20, ended_s=21)  # 19 s after its first op
    build.seen(0, RankState.BUSY, since_s=60, site="/job/x.py:7 (train)")
    assert find(stuck, build) == []
    finding = find_one(stall, build)
    assert finding.severity is Severity.NOTE
    assert "rank 0 is busy for 40 s on CPU" in texts(finding)
    assert "before that, rank 0 was never longer than 19 s between two ops" in texts(finding)


@pytest.mark.parametrize(
    ("state", "why", "is_past", "advice"),
    [
        (
            RankState.ASLEEP,
            "in time.sleep, or a wait with a time limit",
            False,
            "see why it sleeps there",
        ),
        (RankState.ASLEEP, "in a lock", False, "look at what it waits for"),
        (RankState.BUSY, "", False, "it may be at work: take its stacks twice"),
        (RankState.BUSY, "", True, "next time take its stacks twice before you stop the job"),
    ],
)
def test_what_to_do_about_a_stuck_rank_fits_what_was_seen_and_when(
    state: RankState, why: str, is_past: bool, advice: str
) -> None:
    build = waiting_for_0(at_s=30, is_live=not is_past)
    build.seen(0, state, since_s=30, why=why, site="/job/x.py:7 (train)")
    finding = find_one(stuck, build)
    assert advice in finding.advice


def test_a_rank_that_is_over_or_runs_is_not_stuck() -> None:
    build = trained(2)
    build.seen(0, RankState.RUNNING, since_s=2)
    build.seen(1, RankState.ASLEEP, since_s=2)
    build.end(1, at_s=3, cause="exited", exit_code=0)
    assert find(stuck, build) == []


# -------------------------------------------------------------------------------------- failed op


def test_ops_that_timed_out_alike_are_one_finding() -> None:
    build = trained(4)
    for rank in (1, 2, 3):
        words = error("OpTimeout", "barrier #2 waited 30 s for rank 0", ranks=[0], hint="raise it")
        build.op(
            rank,
            "barrier",
            at_s=60,
            ended_s=90,
            status=Status.TIMEOUT,
            error=words,
            site="/job/train.py:90 (main)",
        )
    finding = find_one(failed_op, build)
    assert finding.what == (
        "barrier #2 on group 'world' timed out on ranks 1-3 after 30 s: rank 0 did not reach it"
    )
    assert (finding.ranks, finding.victims, finding.seq) == ((0,), (1, 2, 3), 2)
    assert (finding.severity, finding.at_ns) == (Severity.ERROR, 90 * 10**9)
    assert finding.advice == "raise it"
    assert finding.evidence[0].site == "train.py:90 (main)"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (Status.NETWORK, "lost a connection"),
        (Status.STORE, "failed in the store"),
        (Status.BROKEN, "could not run"),
        (Status.SYSTEM, "failed with DistBackendError"),
        (Status.FAILED, "failed with DistBackendError"),
        (77, "failed with DistBackendError"),
    ],
)
def test_an_op_that_left_no_words_is_told_by_its_status(status: int, told: str) -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=status)
    finding = find_one(failed_op, build)
    assert finding.what == f"barrier #2 on group 'world' {told}" + (
        ": its group was broken on rank 0" if "could" in told else " on rank 0"
    )
    assert (finding.ranks, finding.victims) == ((), (0,))


def test_a_call_that_was_wrong_by_itself_blames_its_rank() -> None:
    build = trained(2)
    build.op(1, "barrier", at_s=2, ended_s=2, status=Status.USAGE, error="not so")
    finding = find_one(failed_op, build)
    assert (finding.ranks, finding.victims) == ((1,), ())
    assert finding.what.endswith("got wrong arguments on rank 1: not so")


def test_an_error_without_an_op_is_told_by_its_words() -> None:
    build = trained(2)
    build.found(0, "DistStoreError", "get 'key' timed out", at_s=4, kind="", group="")
    build.found(0, "Suspicion", "a remark", at_s=4)
    build.found(1, "OpTimeout", "it waited", at_s=4, kind="barrier", group="dp", seq=4, ranks=(0,))
    found = find(failed_op, build)
    assert [finding.what for finding in found] == [
        "an op failed in the store on rank 0: get 'key' timed out",
        "barrier #4 on group 'dp' timed out on rank 1: rank 0 did not reach it",
    ]


def test_a_failed_op_that_the_rank_got_over_is_a_warning() -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT, error="{broken json")
    build.op(0, "barrier", at_s=4, ended_s=5)
    assert find_one(failed_op, build).severity is Severity.WARNING


def test_thousands_of_failed_ops_of_a_rank_are_cut_in_the_middle() -> None:
    build = SessionBuilder(1)
    for step in range(1000):
        build.op(0, "barrier", at_s=step, ended_s=step + 0.5, status=Status.TIMEOUT)
    assert len(find(failed_op, build)) == 128


# ---------------------------------------------------------------------------------------- stopped


def test_an_abort_by_a_person_is_a_stop_and_no_failed_op() -> None:
    build = trained(2)
    words = error("JobAborted", "the job was aborted by ada: wrong config")
    for rank in range(2):
        build.op(rank, "barrier", at_s=2, ended_s=3, status=Status.ABORTED, error=words)
        build.exit(rank, Exit.RAISED, at_s=3, what="JobAborted: the job was aborted by ada")
    finding = find_one(stopped, build)
    assert finding.what == "the job was aborted by ada: wrong config"
    assert (finding.ranks, finding.victims) == ((), (0, 1))
    assert find(failed_op, build) == find(dead, build) == []


def test_a_debugger_that_was_quit_is_a_stop_and_no_failed_op() -> None:
    build = trained(2)
    words = error("DebuggerQuit", "rank 1 quit its debugger in breakpoint #1", ranks=[1])
    for rank in range(2):
        build.op(rank, "breakpoint", at_s=2, ended_s=3, status=Status.ABORTED, error=words)
        build.exit(rank, Exit.RAISED, at_s=3, what="DebuggerQuit: rank 1 quit its debugger")
    finding = find_one(stopped, build)
    assert finding.what == "rank 1 quit its debugger in breakpoint #1"
    assert find(failed_op, build) == find(dead, build) == []


def test_an_abort_by_the_agent_is_a_consequence_of_its_verdict() -> None:
    build = trained(2)
    words = error("JobAborted", "the job was aborted by the agent: rank 1 was killed", ranks=[1])
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.ABORTED, error=words)
    assert find(stopped, build) == []
    assert find_one(failed_op, build).ranks == (1,)


@pytest.mark.parametrize(
    ("number", "told"), [(2, "Ctrl-C (SIGINT)"), (15, "SIGTERM"), (1, "SIGHUP")]
)
def test_a_signal_at_all_ranks_is_a_stop_from_outside(number: int, told: str) -> None:
    build = trained(2)
    for rank in range(2):
        build.end(rank, at_s=2 + rank / 10, cause="signal", signal=number)
    finding = find_one(stopped, build)
    assert finding.what == f"the job was stopped by {told}"
    assert (finding.victims, finding.at_ns) == ((0, 1), 2 * 10**9)
    assert find(dead, build) == []


def test_ctrl_c_is_a_stop_from_the_keyboard() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="KeyboardInterrupt")
    assert find_one(stopped, build).what == "the job was stopped by Ctrl-C (SIGINT)"


def test_a_signal_after_a_death_is_no_stop() -> None:
    build = trained(3)
    build.end(0, at_s=1.5, cause="signal", signal=11)
    for rank in (1, 2):
        build.end(rank, at_s=2, cause="signal", signal=15)
    assert find(stopped, build) == []
    assert find_one(dead, build).ranks == (0,)


def test_a_launcher_that_was_told_to_end_a_healthy_job_is_a_stop() -> None:
    build = trained(2)
    for rank in range(2):
        build.end(rank, at_s=2, cause="signal", signal=15, was_asked=True)
    assert find_one(stopped, build).what == "the job was stopped by SIGTERM"


def test_ranks_that_returned_are_nobodys_finding() -> None:
    build = trained(2)
    for rank in range(2):
        build.exit(rank, Exit.RETURNED, at_s=2)
        build.end(rank, at_s=2.1, cause="exited", exit_code=0)
    for finder in (dead, failed_op, missing, stall, stopped, stuck):
        assert find(finder, build) == []
