"""The diagnosis of a job by lists of events: no clock, no rank, no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from distdbg.agent.judging.decide import step
from distdbg.agent.judging.diagnosis_events import (
    AccountMade,
    AccountReceived,
    ClockHold,
    ClockSeen,
    Dropped,
    Event,
    HostLost,
    JobFinished,
    JobSeen,
    JudgingFailed,
    ProbeReceived,
    ProbeSent,
    RanksEnded,
    RecordsRead,
    SeenEnd,
    StacksTaken,
    VerdictMade,
    WaitsRead,
)
from distdbg.agent.judging.diagnosis_state import DiagnosisPhase, DiagnosisState
from distdbg.agent.judging.instructions import (
    AbortJob,
    FinishJob,
    Instruction,
    Judge,
    LoadJudge,
    LookAtJob,
    MakeAccount,
    PrintLines,
    ReadWaits,
    SendAccount,
    SendProbe,
    TakeStacks,
    WithdrawVerdict,
    WriteVerdict,
)
from distdbg.agent.judging.judge import judge_job
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.agent.judging.reports import ReportedRoot
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import Session
from distdbg.hosts.accounts import HostAccountState, Vouch
from distdbg.record.rank_state import RankState
from tests.unit.agent.test_live_session import account, row

S = 10**9
WAITING = ((0, 100, RankState.WAITING, 5),)
ABORTS = DiagnosisState(abort_on=frozenset(("deadlock",)))


def run(state: DiagnosisState, *events: Event) -> tuple[DiagnosisState, list[Instruction]]:
    """The state after these events, and all that they lead to."""
    done: list[Instruction] = []
    for event in events:
        state, instructions = step(state, event)
        done += instructions
    return state, done


def look(at_s: float, standing: tuple[Any, ...] = WAITING, **more: Any) -> RecordsRead:
    return RecordsRead(at_ns=int(at_s * S), standing=standing, **more)


def kinds(instructions: Sequence[Instruction]) -> list[type[Instruction]]:
    return [type(one) for one in instructions]


def judged_as(kind: FindingKind, proof: str | None) -> JudgedVerdict:
    finding = Finding(kind=kind, severity=Severity.ERROR, what="it is so", ranks=(0, 1))
    return JudgedVerdict(
        session=Session(source="", format="distdbg"),
        verdict=Verdict(what=finding.what, root=finding, findings=(finding,), roles={}),
        case=ReportedRoot(finding, proof),
        lines=["it is so"],
        plain={},
        hopeless=frozenset((0, 1)) if proof is not None else frozenset(),
    )


DEADLOCK = judged_as(FindingKind.DEADLOCK, "deadlock")
SEEN = JobSeen(at_ns=1 * S, states={0: RankState.WAITING, 1: RankState.WAITING})
PROVEN = (
    look(1),
    VerdictMade(at_ns=1 * S, judged=DEADLOCK),
    WaitsRead(at_ns=1 * S, are_unmoved=True),
)


def of_other_host(vouch: int, made_ns: int = 90, **more: Any) -> AccountReceived:
    told = account("b", row(1, 0, **more), row(2, None, "running"))
    return AccountReceived(told=HostAccountState(1, vouch, made_ns, told, 0))


def test_what_is_proven_ends_the_job_after_its_stacks_are_taken() -> None:
    state, done = run(ABORTS, *PROVEN)
    assert kinds(done) == [MakeAccount, ReadWaits, WriteVerdict, LookAtJob]
    state, done = run(state, SEEN)
    assert done == [
        PrintLines(lines=("DEADLOCK on ranks 0-1: the job is aborted",)),
        TakeStacks(ranks=(0, 1), is_before_abort=True),
    ]
    assert state.phase is DiagnosisPhase.ABORTING
    assert run(state, look(2))[1] == []
    state, done = run(state, StacksTaken(is_before_abort=True))
    assert done == [AbortJob(judged=DEADLOCK)]
    assert run(state, look(3), StacksTaken(is_before_abort=True))[1] == []


def test_stacks_that_were_wanted_for_something_else_do_not_end_it() -> None:
    state, _ = run(ABORTS, *PROVEN, SEEN)
    assert run(state, StacksTaken(is_before_abort=False))[1] == []


def test_a_proof_that_no_longer_holds_is_not_said_and_the_job_is_judged_again() -> None:
    state, done = run(ABORTS, *PROVEN[:2], WaitsRead(at_ns=1 * S, are_unmoved=False))
    assert kinds(done) == [MakeAccount, ReadWaits]
    assert state.judged is None
    assert kinds(run(state, look(2))[1]) == [MakeAccount]


def waiting_for_vouch() -> DiagnosisState:
    """A deadlock of rank 0 here and rank 1 of another host, before that has answered."""
    state, done = run(ABORTS, of_other_host(0), look(1, has_pulse=True))
    assert kinds(done) == [LoadJudge, MakeAccount]
    own = AccountMade(at_ns=90_000, wall_ns=90_000, account=account("a", row(0, 1)))
    state, [wanted] = run(state, own)
    assert isinstance(wanted, Judge)
    judged = judge_job(wanted.own, wanted.others, run="run", source="", attempt=0)
    state, [checked] = run(state, VerdictMade(at_ns=1 * S, judged=judged))
    assert isinstance(checked, ReadWaits)
    state, done = run(state, WaitsRead(at_ns=1 * S, are_unmoved=True, elsewhere=(1,)))
    assert done == [SendProbe(ranks=(0, 1))]
    return run(state, ProbeSent(number=7))[0]


def test_a_proof_counts_when_the_other_hosts_have_vouched_for_it() -> None:
    state = waiting_for_vouch()
    assert state.judged is None
    state, done = run(state, look(1.1))
    assert done == []
    state, done = run(state, of_other_host(7, 91), look(1.2))
    assert kinds(done) == [ReadWaits]
    state, done = run(state, WaitsRead(at_ns=2 * S, are_unmoved=True))
    assert kinds(done) == [WriteVerdict, LookAtJob]
    assert state.judged is not None


@pytest.mark.parametrize("more", [{"ops": []}, {"pid": 9}, {"state": "running"}])
def test_a_rank_elsewhere_that_has_moved_ends_the_proof(more: dict[str, Any]) -> None:
    state, done = run(waiting_for_vouch(), of_other_host(7, 91, **more), look(1.2))
    assert kinds(done) == [MakeAccount]
    assert (state.proof, state.judged) == (None, None)


def test_a_host_that_does_not_answer_in_time_or_is_lost_ends_the_proof() -> None:
    state, _ = run(waiting_for_vouch(), look(2))
    assert state.proof is not None
    assert run(state, look(4))[0].proof is None
    lost, _ = run(state, HostLost(node=1), look(2.5))
    assert lost.peers == {}
    assert run(lost, look(4))[0].proof is None


def test_a_host_that_is_not_the_root_tells_what_is_new_and_what_is_asked_for() -> None:
    here = look(1, is_root=False)
    state, done = run(DiagnosisState(), here, here)
    assert done == [SendAccount(at_ns=1 * S, probe=0, has_found=False)]
    state, done = run(state, ProbeReceived(probe=Vouch(3, (0,))), look(2, is_root=False, latent=1))
    assert done == [TakeStacks(ranks=(0,)), SendAccount(at_ns=2 * S, probe=3, has_found=True)]
    prompts = look(3, (), is_root=False, prompts=((0, 100, RankState.DEBUGGED, 9),))
    assert kinds(run(state, prompts, prompts)[1]) == [SendAccount]


def test_what_is_over_is_withdrawn_and_may_be_judged_anew() -> None:
    stall = judged_as(FindingKind.DEAD_RANK, None)
    state, _ = run(ABORTS, look(1), VerdictMade(at_ns=1 * S, judged=stall))
    assert state.is_written
    state, done = run(state, look(2, ()))
    assert (done, state.judged, state.version) == ([WithdrawVerdict()], None, 2)
    assert kinds(run(state, look(3))[1]) == [MakeAccount]


def test_a_job_in_whose_middle_a_prompt_opens_goes_on_until_it_closes() -> None:
    held = ClockSeen(hold=ClockHold.DEBUGGED)
    state, done = run(ABORTS, *PROVEN, SEEN, held, StacksTaken(is_before_abort=True))
    assert AbortJob not in kinds(done)
    assert kinds(run(state, look(2))[1]) == []
    state, done = run(state, ClockSeen(hold=ClockHold.NOBODY), look(3))
    assert kinds(done) == [MakeAccount]


def test_a_job_that_somebody_has_aborted_is_left_to_that() -> None:
    state, done = run(ABORTS, *PROVEN, replace(SEEN, is_aborted=True), look(2))
    assert PrintLines not in kinds(done)
    assert state.phase is DiagnosisPhase.OVER


def test_a_job_that_its_launcher_ends_is_finished_and_nothing_is_said() -> None:
    ended = RanksEnded(ends=(SeenEnd(1, True, True),))
    state, done = run(ABORTS, ended, look(1))
    assert done == [FinishJob(at_ns=1 * S)]
    last = JobFinished(last=look(1), states={0: RankState.FAILED})
    assert run(state, last)[1] == []


def test_the_last_verdict_is_judged_at_once_and_written_and_not_said() -> None:
    last = JobFinished(last=look(1), states={0: RankState.FAILED})
    state, done = run(ABORTS, last)
    assert done == [MakeAccount(at_ns=1 * S)]
    own = AccountMade(at_ns=1, wall_ns=1, account=account("a", row(0, 1)))
    state, [wanted] = run(state, own)
    assert isinstance(wanted, Judge)
    assert wanted.is_last
    state, done = run(state, VerdictMade(at_ns=1 * S, judged=DEADLOCK))
    assert done == [WriteVerdict(judged=DEADLOCK)]
    assert state.phase is DiagnosisPhase.OVER


def test_a_job_that_ended_well_takes_its_verdict_away() -> None:
    stall = judged_as(FindingKind.DEAD_RANK, None)
    state, _ = run(ABORTS, look(1), VerdictMade(at_ns=1 * S, judged=stall))
    last = JobFinished(last=look(2, ()), states={0: RankState.ENDED, 1: RankState.LEFT})
    assert run(state, last)[1] == [WithdrawVerdict()]


@pytest.mark.parametrize("end", [Dropped(), JudgingFailed()])
def test_after_its_end_nothing_that_comes_is_acted_on(end: Event) -> None:
    state, done = run(ABORTS, look(1), end, *PROVEN[1:], look(2), StacksTaken(is_before_abort=True))
    assert kinds(done) == [MakeAccount]
    assert state.phase is DiagnosisPhase.OVER
