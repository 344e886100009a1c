"""The diagnosis of a job by lists of events: no clock, no rank, no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from distdbg.agent.judging import diagnosis_events as events
from distdbg.agent.judging import instructions
from distdbg.agent.judging.decide import step
from distdbg.agent.judging.diagnosis_state import DiagnosisPhase, DiagnosisState
from distdbg.agent.judging.judge import judge_job
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.agent.judging.reports import ReportedRoot
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import Session
from distdbg.hosts.accounts import AccountRequest, HostAccountState
from distdbg.record.rank_state import RankState
from tests.unit.agent.test_live_session import account, row

S = 10**9
WAITING = ((0, 100, RankState.WAITING, 5),)
ABORTS = DiagnosisState(abort_on=frozenset(("deadlock",)))


def run(
    state: DiagnosisState, *happened: events.Event
) -> tuple[DiagnosisState, list[instructions.Instruction]]:
    """The state after these events, and all that they lead to."""
    done: list[instructions.Instruction] = []
    for event in happened:
        state, then = step(state, event)
        done += then
    return state, done


def look(at_s: float, rank_triggers: tuple[Any, ...] = WAITING, **more: Any) -> events.RecordsRead:
    return events.RecordsRead(at_ns=int(at_s * S), rank_triggers=rank_triggers, **more)


def kinds(done: Sequence[instructions.Instruction]) -> list[type[instructions.Instruction]]:
    return [type(one) for one in done]


def judged_as(kind: FindingKind, proof: str | None) -> JudgedVerdict:
    finding = Finding(kind=kind, severity=Severity.ERROR, what="it is so", ranks=(0, 1))
    return JudgedVerdict(
        session=Session(source="", format="distdbg"),
        verdict=Verdict(what=finding.what, root=finding, findings=(finding,), roles={}),
        case=ReportedRoot(finding, proof),
        lines=["it is so"],
        plain={},
        blocked=frozenset((0, 1)) if proof is not None else frozenset(),
    )


DEADLOCK = judged_as(FindingKind.DEADLOCK, "deadlock")
SEEN = events.JobSeen(at_ns=1 * S, states={0: RankState.WAITING, 1: RankState.WAITING})
PROVEN = (
    look(1),
    events.VerdictMade(at_ns=1 * S, judged=DEADLOCK),
    events.WaitsRead(at_ns=1 * S, still_wait=True),
)


def of_other_host(request: int, made_ns: int = 90, **more: Any) -> events.AccountReceived:
    reported = account("b", row(1, 0, **more), row(2, None, "running"))
    return events.AccountReceived(reported=HostAccountState(1, request, made_ns, reported, 0))


def test_what_is_proven_ends_the_job_after_its_stacks_are_taken() -> None:
    state, done = run(ABORTS, *PROVEN)
    assert kinds(done) == [
        instructions.MakeAccount,
        instructions.ReadWaits,
        instructions.WriteVerdict,
        instructions.LookAtJob,
    ]
    state, done = run(state, SEEN)
    assert done == [
        instructions.PrintLines(lines=("DEADLOCK on ranks 0-1: the job is aborted",)),
        instructions.TakeStacks(ranks=(0, 1), is_before_abort=True),
    ]
    assert state.phase is DiagnosisPhase.ABORTING
    assert run(state, look(2))[1] == []
    state, done = run(state, events.StacksTaken(is_before_abort=True))
    assert done == [instructions.AbortJob(judged=DEADLOCK)]
    assert run(state, look(3), events.StacksTaken(is_before_abort=True))[1] == []


def test_stacks_that_were_wanted_for_something_else_do_not_end_it() -> None:
    state, _ = run(ABORTS, *PROVEN, SEEN)
    assert run(state, events.StacksTaken(is_before_abort=False))[1] == []


def test_a_proof_that_no_longer_holds_is_not_said_and_the_job_is_judged_again() -> None:
    state, done = run(ABORTS, *PROVEN[:2], events.WaitsRead(at_ns=1 * S, still_wait=False))
    assert kinds(done) == [instructions.MakeAccount, instructions.ReadWaits]
    assert state.judged is None
    assert kinds(run(state, look(2))[1]) == [instructions.MakeAccount]


def waiting_for_vouch() -> DiagnosisState:
    """A deadlock of rank 0 here and rank 1 of another host, before that has answered."""
    state, done = run(ABORTS, of_other_host(0), look(1, has_pulse=True))
    assert kinds(done) == [instructions.LoadJudge, instructions.MakeAccount]
    own = events.AccountMade(at_ns=90_000, wall_ns=90_000, account=account("a", row(0, 1)))
    state, [wanted] = run(state, own)
    assert isinstance(wanted, instructions.Judge)
    judged = judge_job(wanted.own, wanted.others, run="run", source="", attempt=0)
    state, [checked] = run(state, events.VerdictMade(at_ns=1 * S, judged=judged))
    assert isinstance(checked, instructions.ReadWaits)
    state, done = run(state, events.WaitsRead(at_ns=1 * S, still_wait=True, elsewhere=(1,)))
    assert done == [instructions.RequestAccounts(ranks=(0, 1))]
    return run(state, events.AccountsRequested(number=7))[0]


def test_a_proof_counts_when_the_other_hosts_have_vouched_for_it() -> None:
    state = waiting_for_vouch()
    assert state.judged is None
    state, done = run(state, look(1.1))
    assert done == []
    state, done = run(state, of_other_host(7, 91), look(1.2))
    assert kinds(done) == [instructions.ReadWaits]
    state, done = run(state, events.WaitsRead(at_ns=2 * S, still_wait=True))
    assert kinds(done) == [instructions.WriteVerdict, instructions.LookAtJob]
    assert state.judged is not None


@pytest.mark.parametrize("more", [{"ops": []}, {"pid": 9}, {"state": "running"}])
def test_a_rank_elsewhere_that_has_moved_ends_the_proof(more: dict[str, Any]) -> None:
    state, done = run(waiting_for_vouch(), of_other_host(7, 91, **more), look(1.2))
    assert kinds(done) == [instructions.MakeAccount]
    assert (state.proof, state.judged) == (None, None)


def test_a_host_that_does_not_answer_in_time_or_is_lost_ends_the_proof() -> None:
    state, _ = run(waiting_for_vouch(), look(2))
    assert state.proof is not None
    assert run(state, look(4))[0].proof is None
    lost, _ = run(state, events.HostLost(node=1), look(2.5))
    assert lost.peers == {}
    assert run(lost, look(4))[0].proof is None


def test_a_host_that_is_not_the_root_tells_what_is_new_and_what_is_asked_for() -> None:
    here = look(1, is_root=False)
    state, done = run(DiagnosisState(), here, here)
    assert done == [instructions.SendAccount(at_ns=1 * S, request=0, has_found=False)]
    state, done = run(
        state,
        events.AccountAsked(request=AccountRequest(3, (0,))),
        look(2, is_root=False, latent=1),
    )
    assert done == [
        instructions.TakeStacks(ranks=(0,)),
        instructions.SendAccount(at_ns=2 * S, request=3, has_found=True),
    ]
    prompts = look(3, (), is_root=False, prompts=((0, 100, RankState.DEBUGGED, 9),))
    assert kinds(run(state, prompts, prompts)[1]) == [instructions.SendAccount]


def test_what_is_over_is_withdrawn_and_may_be_judged_anew() -> None:
    stall = judged_as(FindingKind.DEAD_RANK, None)
    state, _ = run(ABORTS, look(1), events.VerdictMade(at_ns=1 * S, judged=stall))
    assert state.is_written
    state, done = run(state, look(2, ()))
    assert (done, state.judged, state.version) == ([instructions.WithdrawVerdict()], None, 2)
    assert kinds(run(state, look(3))[1]) == [instructions.MakeAccount]


def test_a_job_in_whose_middle_a_prompt_opens_goes_on_until_it_closes() -> None:
    held = events.ClockSeen(hold=events.ClockHold.DEBUGGED)
    state, done = run(ABORTS, *PROVEN, SEEN, held, events.StacksTaken(is_before_abort=True))
    assert instructions.AbortJob not in kinds(done)
    assert kinds(run(state, look(2))[1]) == []
    state, done = run(state, events.ClockSeen(hold=events.ClockHold.NOBODY), look(3))
    assert kinds(done) == [instructions.MakeAccount]


def test_a_job_that_somebody_has_aborted_is_left_to_that() -> None:
    state, done = run(ABORTS, *PROVEN, replace(SEEN, is_aborted=True), look(2))
    assert instructions.PrintLines not in kinds(done)
    assert state.phase is DiagnosisPhase.OVER


def test_a_job_that_its_launcher_ends_is_finished_and_nothing_is_said() -> None:
    ended = events.RanksEnded(ends=(events.SeenEnd(1, True, True),))
    state, done = run(ABORTS, ended, look(1))
    assert done == [instructions.FinishJob(at_ns=1 * S)]
    last = events.JobFinished(last=look(1), states={0: RankState.FAILED})
    assert run(state, last)[1] == []


def test_the_last_verdict_is_judged_at_once_and_written_and_not_said() -> None:
    last = events.JobFinished(last=look(1), states={0: RankState.FAILED})
    state, done = run(ABORTS, last)
    assert done == [instructions.MakeAccount(at_ns=1 * S)]
    own = events.AccountMade(at_ns=1, wall_ns=1, account=account("a", row(0, 1)))
    state, [wanted] = run(state, own)
    assert isinstance(wanted, instructions.Judge)
    assert wanted.is_last
    state, done = run(state, events.VerdictMade(at_ns=1 * S, judged=DEADLOCK))
    assert done == [instructions.WriteVerdict(judged=DEADLOCK)]
    assert state.phase is DiagnosisPhase.OVER


def test_a_job_that_ended_well_takes_its_verdict_away() -> None:
    stall = judged_as(FindingKind.DEAD_RANK, None)
    state, _ = run(ABORTS, look(1), events.VerdictMade(at_ns=1 * S, judged=stall))
    last = events.JobFinished(last=look(2, ()), states={0: RankState.ENDED, 1: RankState.LEFT})
    assert run(state, last)[1] == [instructions.WithdrawVerdict()]


@pytest.mark.parametrize("end", [events.Dropped(), events.JudgingFailed()])
def test_after_its_end_nothing_that_comes_is_acted_on(end: events.Event) -> None:
    state, done = run(
        ABORTS, look(1), end, *PROVEN[1:], look(2), events.StacksTaken(is_before_abort=True)
    )
    assert kinds(done) == [instructions.MakeAccount]
    assert state.phase is DiagnosisPhase.OVER
