"""The watch over a job that is started anew, or moves while it is judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.agent.judging import judge
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.agent.judging.reports import GRACE_NS, ReportedRoot
from distdbg.agent.judging.watch import LiveDiagnosis
from distdbg.diagnose.find.latent import KINDS
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import Session
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.known_marks import LATENT
from distdbg.record.rank_state import RankState

Job = tuple[Callable[[], Any], Callable[[Future[Any]], None]]


class Stage:
    """A watch whose work is done when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.thoughts: list[Job] = []
        self.stacks: list[Job] = []
        self.said: list[str] = []
        self.aborted: list[str] = []
        watched = WatchedRank(
            rank=0, host="a", pid=1, progress_ns=5, state=RankState.WAITING, is_exact=True
        )
        self.roster = SimpleNamespace(
            watched_ranks={0: watched}, ends=[], folder=folder, attempt=0, settle=lambda _: None
        )
        steering = SimpleNamespace(
            is_root=True,
            has_tree=False,
            is_aborted=False,
            is_held=False,
            is_debugged=False,
            accounts=list,
            rows_of_others=tuple,
            abort=lambda words: self.aborted.append(words.what),
        )
        self.steering = steering
        self.found: list[dict[str, Any]] = []
        self.watch = LiveDiagnosis(
            "a",
            "run",
            self.roster,  # type: ignore[arg-type]
            steering,  # type: ignore[arg-type]
            run_in_judge_thread=lambda do, then: self.thoughts.append((do, then)),
            run_in_thread=lambda do, then: self.stacks.append((do, then)),
            print_lines=self.said.extend,
            abort_on=frozenset(("deadlock",)),
            findings=lambda: self.found,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def outcome(value: object) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(value)
    return done


def proven() -> JudgedVerdict:
    finding = Finding(
        kind=FindingKind.DEADLOCK, severity=Severity.ERROR, what="it is so", ranks=(0, 1)
    )
    return JudgedVerdict(
        session=Session(source="", format="distdbg"),
        verdict=Verdict(what=finding.what, root=finding, findings=(finding,), roles={}),
        case=ReportedRoot(finding, "deadlock"),
        lines=["it is so"],
        plain={},
        blocked=frozenset(),
    )


def test_what_is_proven_ends_the_job(stage: Stage) -> None:
    stage.watch.tick(10**9)
    [(_, then)] = stage.thoughts
    then(outcome((proven(), 0)))
    # What is so, the launcher's report says, and it alone.
    assert stage.said == ["DEADLOCK on ranks 0-1: the job is aborted"]
    assert stage.aborted == ["it is so"]


def test_nothing_ends_a_job_whose_clock_somebody_holds_until_it_runs_on(stage: Stage) -> None:
    stage.steering.is_held = True
    stage.watch.tick(10**9)
    [(_, then)] = stage.thoughts
    then(outcome((proven(), 0)))
    assert (stage.said, stage.aborted) == (["it is so"], [])
    stage.watch.tick(2 * 10**9)
    assert len(stage.thoughts) == 1
    stage.steering.is_held = False
    stage.watch.tick(time.monotonic_ns() + 10**9)
    then = stage.thoughts[1][1]
    then(outcome((proven(), 0)))
    assert stage.aborted == ["it is so"]


def dead() -> JudgedVerdict:
    finding = Finding(
        kind=FindingKind.DEAD_RANK, severity=Severity.ERROR, what="rank 0 died", ranks=(0,)
    )
    verdict = Verdict(what=finding.what, root=finding, findings=(finding,), roles={})
    return replace(proven(), verdict=verdict, case=ReportedRoot(finding, "dead"))


def test_a_death_does_not_end_a_job_with_a_rank_at_a_prompt_until_that_goes_on(
    stage: Stage,
) -> None:
    stage.steering.is_held = stage.steering.is_debugged = True
    stage.watch.state = replace(stage.watch.state, abort_on=frozenset(("dead",)))
    stage.watch.tick(time.monotonic_ns())
    stage.thoughts[0][1](outcome((dead(), 0)))
    stage.watch.tick(time.monotonic_ns() + GRACE_NS + 10**9)
    assert (stage.said, stage.aborted) == (["it is so"], [])
    stage.steering.is_debugged = False  # a person has paused the job as well: that saves nobody
    stage.watch.tick(time.monotonic_ns() + 2 * GRACE_NS + 2 * 10**9)
    stage.thoughts[1][1](outcome((dead(), 0)))
    stage.watch.tick(time.monotonic_ns() + 3 * GRACE_NS + 3 * 10**9)
    assert stage.aborted == ["it is so"]


def test_a_prompt_that_opens_while_stacks_are_taken_stays(stage: Stage) -> None:
    stage.watch.state = replace(stage.watch.state, abort_on=frozenset(("dead",)))
    stage.roster.watched_ranks[0].life = SimpleNamespace(started=1)
    stage.watch.tick(time.monotonic_ns())
    stage.thoughts[0][1](outcome((dead(), 0)))
    stage.watch.tick(time.monotonic_ns() + GRACE_NS + 10**9)
    [(_, then)] = stage.stacks
    stage.steering.is_held = stage.steering.is_debugged = True
    then(outcome([]))
    assert stage.aborted == []


def test_a_rank_that_is_gone_ends_the_job_whoever_has_paused_it(stage: Stage) -> None:
    stage.steering.is_held = True
    stage.watch.state = replace(stage.watch.state, abort_on=frozenset(("dead",)))
    stage.watch.tick(time.monotonic_ns())
    [(_, then)] = stage.thoughts
    then(outcome((dead(), 0)))
    stage.watch.tick(time.monotonic_ns() + GRACE_NS + 10**9)
    assert stage.aborted == ["it is so"]


def test_latent_errors_are_judged_while_all_ranks_go_on_and_once(stage: Stage) -> None:
    stage.roster.watched_ranks[0].state = RankState.RUNNING
    stage.watch.tick(10**9)
    assert stage.thoughts == []
    stage.found.append({"type": "OpTimeout", "rank": 0})
    stage.watch.tick(2 * 10**9)
    assert stage.thoughts == []
    stage.found.append({"type": "LeakedWork", "rank": 0})
    stage.watch.tick(3 * 10**9)
    [(_, then)] = stage.thoughts
    finding = Finding(
        kind=FindingKind.LEAKED_WORK, severity=Severity.WARNING, what="rank 0 never waited"
    )
    verdict = Verdict(what=finding.what, root=finding, findings=(finding,), roles={})
    then(outcome((replace(proven(), verdict=verdict, case=ReportedRoot(finding)), 0)))
    assert stage.said == []  # the rank itself has warned
    for at_s in range(4, 8):
        stage.watch.tick(at_s * 10**9)
    assert len(stage.thoughts) == 1
    stage.found.append({"type": "BufferRace", "rank": 0})
    stage.watch.tick(time.monotonic_ns() + 10**9)
    assert len(stage.thoughts) == 2


def test_the_latent_errors_are_those_that_the_diagnosis_knows() -> None:
    assert set(KINDS) == LATENT


def test_what_is_found_as_a_launcher_ends_the_ranks_is_left_to_its_report(stage: Stage) -> None:
    stage.watch.tick(10**9)
    [(_, then)] = stage.thoughts
    stage.roster.ends.append(SimpleNamespace(rank=0, was_asked=True, is_failure=True))
    then(outcome((proven(), 0)))
    assert (stage.said, stage.aborted) == ([], [])


def test_a_verdict_that_comes_when_the_ranks_were_started_anew_says_and_ends_nothing(
    stage: Stage,
) -> None:
    stage.watch.tick(10**9)
    [(_, then)] = stage.thoughts
    stage.watch.finish(2 * 10**9)
    then(outcome((proven(), 0)))
    assert (stage.said, stage.aborted) == ([], [])


def test_stacks_that_come_when_the_ranks_were_started_anew_end_nothing(stage: Stage) -> None:
    stage.roster.watched_ranks[0].life = SimpleNamespace(started=1)
    stage.watch.tick(10**9)
    [(_, then)] = stage.thoughts
    then(outcome((proven(), 0)))
    [(_, then)] = stage.stacks
    assert stage.aborted == []
    stage.watch.finish(2 * 10**9)
    then(outcome([]))
    assert stage.aborted == []


def test_words_that_say_how_long_something_lasts_are_made_anew_and_what_is_proven_is_not(
    stage: Stage,
) -> None:
    finding = Finding(kind=FindingKind.STALL, severity=Severity.NOTE, what="for 1.5 s", ranks=(0,))
    verdict = Verdict(what=finding.what, root=finding, findings=(finding,), roles={})
    stalled = replace(proven(), verdict=verdict, case=ReportedRoot(finding))
    stage.watch.tick(time.monotonic_ns())
    stage.thoughts[0][1](outcome((stalled, 0)))
    begin_ns = time.monotonic_ns()
    stage.watch.tick(begin_ns + 10**8)
    assert len(stage.thoughts) == 1
    stage.watch.tick(begin_ns + 2 * 10**9)
    stage.watch.tick(begin_ns + 2 * 10**9)
    assert len(stage.thoughts) == 2, "once, until the answer is there"
    stage.thoughts[1][1](outcome((proven(), 0)))
    stage.watch.tick(time.monotonic_ns() + 100 * 10**9)
    assert len(stage.thoughts) == 2


def test_the_last_verdict_is_news_to_those_who_ask_by_its_version(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.roster.watched_ranks[0].state = RankState.FAILED
    monkeypatch.setattr(judge, "judge_job", lambda *_, **__: proven())
    assert stage.watch.version == 0
    stage.watch.finish(10**9)
    assert stage.watch.plain_lines() == ["it is so"]
    assert stage.watch.version == 1


def test_ranks_that_wait_after_faults_that_are_over_leave_no_verdict(
    stage: Stage, tmp_path: Path
) -> None:
    finding = Finding(kind=FindingKind.STALL, severity=Severity.NOTE, what="for 1.5 s", ranks=(0,))
    over = Finding(kind=FindingKind.FAILED_OP, severity=Severity.WARNING, what="it timed out")
    verdict = Verdict(what=finding.what, root=finding, findings=(finding, over), roles={})
    stage.watch.tick(10**9)
    stage.thoughts[0][1](
        outcome((replace(proven(), verdict=verdict, case=ReportedRoot(finding)), 0))
    )
    assert stage.watch.version == 1
    assert not (tmp_path / "verdict.json").exists()
