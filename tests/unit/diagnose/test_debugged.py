"""Ranks at the prompt of a debugger: a name for the wait, and no fault."""

from __future__ import annotations

import pytest

from distdbg.agent.policy import find_blocked
from distdbg.diagnose.debugged import held_spans, is_debugged, prompt_of
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.diagnose.waits import find_waits
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder

SECOND = 10**9
SITE = "/home/ada/train.py:88 (step)"
WHY = "before all_reduce #1 on group 'world'"


def waiting(*, is_live: bool = True) -> SessionBuilder:
    """Ranks 1-3 wait in all_reduce #1 since 60 s, it is 100 s; rank 0 has not come."""
    build = SessionBuilder(4, is_live=is_live)
    for rank in (1, 2, 3):
        build.op(rank, "all_reduce", at_s=60.0, site="train.py:90 (step)", inputs=[(4,)])
    return build


def stop(build: SessionBuilder, rank: int, at_s: float, ended_s: float | None = None) -> None:
    build.op(rank, "debugger", at_s=at_s, ended_s=ended_s, site=SITE, name=WHY)


def kinds(session: Session) -> set[FindingKind]:
    return {finding.kind for finding in diagnose(session).findings}


def only(session: Session) -> Finding:
    [finding] = diagnose(session).findings
    return finding


@pytest.mark.parametrize("is_live", [True, False])
def test_who_waits_for_a_rank_in_the_debugger_waits_for_it_by_name(is_live: bool) -> None:
    build = waiting(is_live=is_live)
    stop(build, 0, 88.0)
    found = only(build.session)
    assert (found.kind, found.severity) == (FindingKind.STALL, Severity.NOTE)
    assert (found.ranks, found.victims) == ((0,), (1, 2, 3))
    assert found.what == (
        "ranks 1-3 wait for rank 0, in the debugger at train.py:88 (step) for 12 s, "
        "in all_reduce #1 on group 'world'"
    )
    assert found.evidence[0].text == f"rank 0 is in the debugger at train.py:88 (step) ({WHY})"
    assert found.numbers["debugged_s"] == 12.0
    assert not diagnose(build.session).has_faults


def test_what_only_the_agent_has_seen_is_enough() -> None:
    build = waiting()
    build.seen(0, RankState.DEBUGGED, since_s=90.0, site=SITE, why="breakpoint")
    found = only(build.session)
    assert "for rank 0, in the debugger at train.py:88 (step) for 10 s" in found.what
    assert found.evidence[0].text.endswith("(breakpoint)")


def test_several_in_debuggers_are_named_together() -> None:
    build = SessionBuilder(4, is_live=True)
    for rank in (1, 2):
        build.op(rank, "all_reduce", at_s=60.0, inputs=[(4,)])
    stop(build, 0, 70.0)
    stop(build, 3, 80.0)
    found = only(build.session)
    assert found.ranks == (0, 3)
    assert found.what.startswith("ranks 1-2 wait for ranks 0,3, in the debugger for 30 s")


def test_a_rank_that_was_interrupted_in_an_op_is_part_of_no_deadlock() -> None:
    build = SessionBuilder(2, is_live=True)
    build.op(0, "recv", peer=1, at_s=10.0)
    build.op(1, "recv", peer=0, at_s=10.0)
    assert kinds(build.session) == {FindingKind.DEADLOCK}
    stop(build, 1, 50.0)
    assert kinds(build.session) == {FindingKind.STALL}
    waits = dict(find_waits(build.session, match(build.session)))
    assert list(waits) == [0]
    assert not find_blocked(build.session, waits)


@pytest.mark.parametrize("state", [RankState.ASLEEP, RankState.STOPPED, RankState.HOLDS_GIL])
def test_a_rank_at_its_prompt_is_not_stuck_however_it_looks(state: RankState) -> None:
    build = waiting()
    build.seen(0, state, since_s=50.0)
    stop(build, 0, 50.0)
    assert kinds(build.session) == {FindingKind.STALL}


def test_those_at_a_breakpoint_wait_for_the_ranks_that_stop_there() -> None:
    build = SessionBuilder(4, is_live=True)
    for rank in (1, 2, 3):
        build.op(rank, "breakpoint", at_s=60.0, site="train.py:70 (step)", members=[(0, 1, 1)])
    stop(build, 0, 61.0)
    found = only(build.session)
    assert (found.kind, found.ranks, found.victims) == (FindingKind.STALL, (0,), (1, 2, 3))
    waits = dict(find_waits(build.session, match(build.session)))
    assert {edge.on for edges in waits.values() for edge in edges} == {(0,)}


def test_a_breakpoint_that_nobody_came_to_waits_for_its_ranks() -> None:
    build = SessionBuilder(2, is_live=True)
    build.op(1, "breakpoint", at_s=60.0, members=[(0, 1, 1)])
    found = only(build.session)
    assert (found.kind, found.ranks) == (FindingKind.STALL, (0,))
    # One that waits in an op from before has not come, and will not.
    build.op(0, "all_reduce", at_s=30.0, inputs=[(4,)])
    assert kinds(build.session) == {FindingKind.DEADLOCK}


def test_who_went_on_from_a_breakpoint_is_not_waited_for_there() -> None:
    # The others hear of it a moment later: no deadlock.
    build = SessionBuilder(2, is_live=True)
    build.op(1, "breakpoint", at_s=60.0, members=[(0, 1, 1)])
    build.op(0, "all_reduce", at_s=70.0, inputs=[(4,)])
    assert FindingKind.DEADLOCK not in kinds(build.session)


def test_others_that_are_dead_or_stuck_are_told_of_beside_a_debugger() -> None:
    build = waiting()
    stop(build, 0, 88.0)
    build.end(3, at_s=95.0, cause="signal", signal=9)
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.ranks) == (FindingKind.DEAD_RANK, (3,))


def test_a_rank_that_was_killed_at_its_prompt_is_told_so() -> None:
    build = waiting(is_live=False)
    stop(build, 0, 88.0)
    build.end(0, at_s=95.0, cause="signal", signal=9)
    root = diagnose(build.session).root
    assert root is not None
    assert root.kind is FindingKind.DEAD_RANK
    assert root.what == (
        "rank 0 was killed by SIGKILL at the prompt of its debugger, at train.py:88 (step)"
    )
    assert any(WHY in one.text for one in root.evidence)
    assert prompt_of(build.session, 0) is not None
    assert is_debugged(build.session.ranks[0])


def test_one_that_was_at_a_prompt_earlier_is_told_nothing_of_it() -> None:
    build = SessionBuilder(2)
    stop(build, 0, 10.0, ended_s=12.0)
    build.end(0, at_s=95.0, cause="signal", signal=9)
    root = diagnose(build.session).root
    assert root is not None
    assert "prompt" not in root.what
    assert prompt_of(build.session, 0) is None
    assert prompt_of(build.session, 7) is None


def test_the_times_at_prompts_are_put_together() -> None:
    build = SessionBuilder(3)
    stop(build, 0, 10.0, ended_s=20.0)
    stop(build, 1, 15.0, ended_s=30.0)
    stop(build, 0, 40.0, ended_s=41.0)
    stop(build, 2, 50.0)
    build.end(2, at_s=60.0, cause="signal", signal=9)
    spans = [(begin // SECOND, end // SECOND) for begin, end in held_spans(build.session)]
    assert spans == [(10, 30), (40, 41), (50, 60)]
    assert held_spans(SessionBuilder(2).session) == []


def steps(*, is_stopped: bool) -> Session:
    """Rank 1 comes 50 ms late to every second step: because of itself, or because somebody looks at it."""
    build = SessionBuilder(4)
    for step in range(100):
        at = 1.0 + step * 0.1
        late = 0.05 if step % 2 else 0.0
        if is_stopped and late:
            build.op(1, "debugger", at_s=at + 0.001, ended_s=at + 0.049, name="breakpoint")
        for rank in range(4):
            mine = late if rank == 1 else 0.0
            build.op(
                rank,
                "all_reduce",
                at_s=at + mine + rank * 1e-5,
                started_s=at + late + 1e-4,
                ended_s=at + late + 2e-4,
                site=SITE,
            )
    return build.session


def test_time_in_a_debugger_is_nobodys_lateness() -> None:
    assert FindingKind.STRAGGLER in kinds(steps(is_stopped=False))
    assert kinds(steps(is_stopped=True)) == set()
