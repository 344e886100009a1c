"""What a launcher does next, for each thing it may know; and what a job of several comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.launch.decide import LauncherAction, Situation, decide
from distdbg.launch.rendezvous.notes import LauncherNote
from distdbg.launch.rendezvous.round import Closing
from tests.unit.launch.simulated_launchers import Job, Launcher, bury, settle

DONE = LauncherNote(kind="finished")
LEAVING = LauncherNote(kind="leaving", what="SIGTERM was received")
FAILED = LauncherNote(kind="failed", what="rank 5 exited with code 3")
BAD = Closing(reason="rank 7 was killed", is_well=False)
GOOD = Closing(reason="all ranks succeeded", is_well=True)


def situation(**facts: Any) -> Situation:
    return Situation(**{"name": "a", "nodes": ("a", "b", "c"), "running": 2, **facts})


@pytest.mark.parametrize(
    ("facts", "action", "reason"),
    [
        ({}, LauncherAction.GO_ON, ""),
        ({"running": 0}, LauncherAction.GO_ON, ""),
        ({"running": 0, "notes": {"b": DONE}}, LauncherAction.GO_ON, ""),
        ({"notes": {"b": DONE, "c": DONE}}, LauncherAction.GO_ON, ""),
        (
            {"running": 0, "notes": {"b": DONE, "c": DONE}},
            LauncherAction.END_WELL,
            "all ranks succeeded",
        ),
        ({"running": 0, "nodes": ("a",)}, LauncherAction.END_WELL, "all ranks succeeded"),
        (
            {"running": 0, "notes": {"b": DONE}, "has_waited_enough": True},
            LauncherAction.LEAVE_WELL,
            "the ranks here succeeded; not waiting any longer for c",
        ),
        ({"running": 1, "has_waited_enough": True}, LauncherAction.GO_ON, ""),
        ({"running": 1, "failure": "rank 0 failed"}, LauncherAction.END_FAILED, "rank 0 failed"),
        ({"running": 0, "failure": "rank 0 failed"}, LauncherAction.END_FAILED, "rank 0 failed"),
        ({"failure": "rank 0 failed", "restarts_left": 1}, LauncherAction.RESTART, "rank 0 failed"),
        (
            {"failure": "rank 0 failed", "restarts_left": 1, "closing": BAD},
            LauncherAction.END_FAILED,
            "rank 0 failed",
        ),
        ({"notes": {"c": FAILED}}, LauncherAction.END_FAILED, "rank 5 exited with code 3"),
        (
            {"notes": {"c": FAILED}, "restarts_left": 2},
            LauncherAction.RESTART,
            "rank 5 exited with code 3",
        ),
        (
            {"running": 0, "notes": {"b": DONE, "c": FAILED}, "restarts_left": 2},
            LauncherAction.RESTART,
            "rank 5 exited with code 3",
        ),
        (
            {"notes": {"c": LauncherNote(kind="failed")}},
            LauncherAction.END_FAILED,
            "a rank of launcher c failed",
        ),
        ({"closing": BAD}, LauncherAction.END_FAILED, "rank 7 was killed"),
        ({"running": 0, "closing": BAD}, LauncherAction.END_FAILED, "rank 7 was killed"),
        ({"closing": GOOD}, LauncherAction.GO_ON, ""),
        ({"running": 0, "closing": GOOD}, LauncherAction.END_WELL, "all ranks succeeded"),
        ({"waiting_count": 1}, LauncherAction.RESTART, "1 launcher waits to join"),
        ({"waiting_count": 2}, LauncherAction.RESTART, "2 launchers wait to join"),
        ({"waiting_count": 1, "notes": {"b": DONE}}, LauncherAction.GO_ON, ""),
        ({"waiting_count": 1, "running": 0}, LauncherAction.GO_ON, ""),
        (
            {"waiting_count": 1, "next_has_begun": True, "running": 0},
            LauncherAction.RESTART,
            "another launcher has begun the next round",
        ),
        ({"lost": ("b",)}, LauncherAction.RESTART, "launcher b is gone"),
        ({"lost": ("b", "c")}, LauncherAction.RESTART, "launchers b, c are gone"),
        ({"lost": ("b",), "can_replace": False}, LauncherAction.END_FAILED, "launcher b is gone"),
        (
            {"notes": {"b": LEAVING}},
            LauncherAction.RESTART,
            "launcher b is gone: SIGTERM was received",
        ),
        (
            {"notes": {"b": LEAVING}, "next_has_begun": True},
            LauncherAction.RESTART,
            "launcher b is gone: SIGTERM was received",
        ),
        (
            {"notes": {"b": LEAVING}, "can_replace": False},
            LauncherAction.END_FAILED,
            "launcher b is gone: SIGTERM was received",
        ),
        (
            {"notes": {"b": LEAVING}, "lost": ("c",)},
            LauncherAction.RESTART,
            "launchers b, c are gone",
        ),
        (
            {"running": 0, "lost": ("b",), "closing": GOOD, "next_has_begun": True},
            LauncherAction.END_WELL,
            "all ranks succeeded",
        ),
        ({"lost": ("b",), "closing": GOOD}, LauncherAction.GO_ON, ""),
        ({"closing": GOOD, "failure": "rank 0 failed"}, LauncherAction.END_FAILED, "rank 0 failed"),
        ({"lost": ("b",), "notes": {"b": DONE}}, LauncherAction.GO_ON, ""),
        ({"lost": ("b",), "running": 0}, LauncherAction.RESTART, "launcher b is gone"),
        ({"lost": ("a",)}, LauncherAction.RESTART, "the other launchers considered this one dead"),
        (
            {"lost": ("a", "b"), "running": 0, "notes": {"b": DONE, "c": DONE}},
            LauncherAction.END_WELL,
            "all ranks succeeded",
        ),
        ({"signal": "SIGTERM"}, LauncherAction.LEAVE, "SIGTERM was received"),
        ({"signal": "SIGTERM", "failure": "x"}, LauncherAction.LEAVE, "SIGTERM was received"),
    ],
)
def test_each_situation_has_its_decision(
    facts: dict[str, Any], action: LauncherAction, reason: str
) -> None:
    decision = decide(situation(**facts))
    assert (decision.action, decision.reason) == (action, reason)


@pytest.mark.parametrize(
    ("facts", "uses_restart"),
    [
        ({"failure": "x", "restarts_left": 1}, True),
        ({"notes": {"b": FAILED}, "restarts_left": 1}, True),
        ({"notes": {"b": FAILED}, "restarts_left": 1, "next_has_begun": True}, True),
        ({"next_has_begun": True, "restarts_left": 1}, False),
        ({"waiting_count": 1, "restarts_left": 1}, False),
        ({"lost": ("b",), "restarts_left": 1}, False),
        ({"waiting_count": 1, "restarts_left": 0}, False),
    ],
)
def test_only_a_failure_uses_up_a_restart(facts: dict[str, Any], uses_restart: bool) -> None:
    decision = decide(situation(**facts))
    assert decision.action is LauncherAction.RESTART
    assert decision.uses_restart is uses_restart


# ---------------------------------------------------------------------------- jobs of several


def job_of(
    count: int, *, max_restarts: int = 0, low: int = 1, high: int = 4
) -> tuple[Any, list[Any]]:
    job = Job(min_nodes=low, max_nodes=high)
    launchers = [Launcher(job, f"n{number}", max_restarts=max_restarts) for number in range(count)]
    return job, launchers


def end_all(job: Any, launchers: list[Any]) -> None:
    for _ in range(4):
        for one in launchers:
            one.end_rank()
        settle(job, launchers, turns=80)


def test_a_job_ends_well_when_all_ranks_did() -> None:
    job, launchers = job_of(3)
    settle(job, launchers)
    launchers[1].end_rank()
    settle(job, launchers)
    assert not any(one.is_over for one in launchers)  # it waits for the others
    end_all(job, launchers)
    assert {one.end.action for one in launchers} == {LauncherAction.END_WELL}


def test_a_failure_restarts_all_once_and_ends_all_the_second_time() -> None:
    job, launchers = job_of(3, max_restarts=1)
    settle(job, launchers)
    launchers[0].end_rank()  # done already, and has to begin anew with the others
    launchers[2].end_rank("rank 2 failed")
    settle(job, launchers)
    assert [one.number for one in launchers] == [1, 1, 1]
    assert [one.restarts_left for one in launchers] == [0, 0, 0]
    launchers[1].end_rank("rank 1 failed")
    settle(job, launchers)
    assert {one.end.action for one in launchers} == {LauncherAction.END_FAILED}
    assert {one.end.reason for one in launchers} == {"rank 1 failed"}


def test_launchers_that_come_and_go_use_up_no_restart() -> None:
    job, launchers = job_of(2)
    settle(job, launchers)
    launchers.append(Launcher(job, "late"))
    settle(job, launchers)
    assert len(job.completed[1]) == 3
    launchers[0].signal = "SIGTERM"
    settle(job, launchers)
    assert launchers[0].end.action is LauncherAction.LEAVE
    assert len(job.completed[2]) == 2
    launchers[1].is_dead = True
    settle(job, launchers)
    assert job.completed[3] == ("late",)
    end_all(job, launchers)
    assert launchers[2].end.action is LauncherAction.END_WELL


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_job_ends_uses_no_restart_twice_and_never_well_with_a_failed_rank(
    data: st.DataObject,
) -> None:
    max_restarts = data.draw(st.integers(0, 2), "max restarts")
    low = data.draw(st.integers(1, 2), "min")
    job, launchers = job_of(
        data.draw(st.integers(low, 4), "launchers"), max_restarts=max_restarts, low=low
    )
    one_of = st.sampled_from(launchers)
    failed_rounds = set()
    for event in data.draw(st.lists(st.sampled_from("ssssssssaaaeefkgt"), max_size=150)):
        one = data.draw(one_of)
        match event:
            case "s":
                one.step()
            case "a":
                for other in launchers:
                    other.step()
            case "e":
                one.end_rank()
            case "f":
                if one.is_in_round and one.is_running:
                    failed_rounds.add(one.number)
                one.end_rank("a rank failed")
            case "k":
                one.is_dead = True
                bury(job, launchers)
            case "g":
                one.signal = "SIGTERM"
            case "t":
                job.now_s += 20.0
    for _ in range(3):
        settle(job, launchers, turns=60)
        for one in launchers:
            one.end_rank()
    settle(job, launchers, turns=60)
    still_there = [one for one in launchers if not one.is_over]
    assert len(still_there) < low  # too few: they wait for others until their deadline
    assert not any(one.is_in_round for one in still_there)
    for one in launchers:
        assert len(one.failed_rounds) <= max_restarts
        assert len(set(one.failed_rounds)) == len(one.failed_rounds)
        if one.end is not None and one.end.action is LauncherAction.END_WELL:
            assert one.failure is None
            assert one.number not in failed_rounds
