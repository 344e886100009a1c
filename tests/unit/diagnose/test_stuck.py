"""Ranks that others wait for: busy for a while, or stuck."""

import pytest

from distdbg.diagnose.find import dead, missing, stall, stuck
from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.diagnose.session import Activity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.durations import duration_text
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import find, find_one, texts, trained, waiting_for_0


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
    build.seen(0, RankState.RUNNING, since_s=90, stack=(RecordedFrame("/job/a.py", 3, "g"),))
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
        stack=(RecordedFrame("/job/a.py", 7, "f"), RecordedFrame("/job/b.py", 3, "main")),
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


def test_the_op_of_one_waiter_is_not_said_of_those_that_wait_in_another() -> None:
    for at_s, finder in ((92, stall), (60, stuck)):
        build = trained(3, is_live=True)
        build.op(0, "recv", peer=1, at_s=at_s, site="/job/a.py:9 (main)")
        build.op(2, "barrier", at_s=at_s, site="/job/a.py:10 (main)")
        build.seen(1, RankState.ASLEEP, since_s=at_s, site="/job/a.py:4 (load)")
        finding = find_one(finder, build)
        assert "ranks 0,2 wait for" in finding.what
        assert "recv" not in finding.what
        assert "rank 0 waits in recv from rank 1 on group 'world' at a.py:9 (main)" in texts(
            finding
        )


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
        (RankState.ASLEEP, "blocked on a lock", False, "look at what it waits for"),
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


def test_ranks_that_wait_for_a_file_lock_are_told_who_holds_it() -> None:
    build = SessionBuilder(3, now_s=60)
    build.op(2, "all_gather", at_s=1)
    why = "waiting for a file lock that rank 2 holds"
    for rank in range(2):
        build.seen(rank, RankState.ASLEEP, since_s=3, site="/job/a.py:9 (open_index)", why=why)
        build.end(rank, at_s=60, cause="signal", signal=15, was_asked=True)
    build.end(2, at_s=60, cause="signal", signal=15, was_asked=True)
    root = diagnose(build.session).root
    assert root is not None
    assert root.what.startswith(
        "rank 2 waited 59 s for ranks 0-1, in open_index() at a.py:9, waiting for a file lock that rank 2"
    )
    assert (root.ranks, root.victims) == ((2,), (0, 1))  # the cause is who holds it meanwhile
    assert root.advice == "let rank 2 release that file lock before it waits for the others"


@pytest.mark.parametrize("holder", [2, 1], ids=["who waits for them", "somebody else"])
def test_a_lock_that_is_held_by_who_waits_for_them_is_a_hang_of_any_age(holder: int) -> None:
    build = SessionBuilder(3, now_s=6, is_live=True)
    build.op(2, "all_gather", at_s=1, site="/job/a.py:45 (load_index)")
    why = f"waiting for a file lock that rank {holder} holds"
    build.seen(0, RankState.ASLEEP, since_s=3, site="/job/a.py:9 (open_index)", why=why)
    root = diagnose(build.session).root
    assert root is not None
    is_locked = root.kind is FindingKind.STUCK_RANK and 0 in root.ranks
    assert is_locked == (holder == 2)
    if is_locked:
        assert root.severity is Severity.ERROR
        assert root.what.startswith(
            "rank 0 is waiting for a file lock that rank 2 holds in open_index() at a.py:9"
        )
