"""Decides when the job is diagnosed, what is said of it, and when it is aborted. Pure.

    state, instructions = step(state, event)

    a rank has waited for 250 ms, is stuck, or has died  ->  accounts of all hosts  ->  judged
    judged  ->  does the proof still hold, here and on other hosts?  ->  stacks  ->  said, written, aborted

The job is judged again when the set of such ranks has changed, and now and then while it has not: a verdict
says how long things last. What is proven is not judged again. The root's agent diagnoses for all hosts; the
others send it their accounts, and answer its requests (`hosts.accounts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from distdbg.agent.judging import diagnosis_events as events
from distdbg.agent.judging import instructions
from distdbg.agent.judging.account import Account
from distdbg.agent.judging.diagnosis_state import (
    DiagnosisPhase,
    DiagnosisState,
    Peer,
    PendingProof,
)
from distdbg.agent.judging.diagnosis_triggers import has_ended_well, is_of_interest
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.judging.judged_verdict import JudgedVerdict
    from distdbg.agent.judging.reports import ReportedRoot

_S: Final = 1_000_000_000
#: What is said without hurry is no older.
_STALE_NS: Final = _S
#: After which a request that not all hosts have answered is given up.
_ANSWER_NS: Final = 2 * _S

Step = tuple[DiagnosisState, tuple[instructions.Instruction, ...]]


#: Between two looks, however much changes: a look costs some milliseconds.
_MIN_PAUSE_NS: Final = 100_000_000
_MAX_PAUSE_NS: Final = 2 * _S
#: The pause until the next look, as a multiple of what the last has cost.
_PAUSE_PER_COST: Final = 50
#: A verdict that stands is judged again when so much of its age has passed, and not more often than this:
#: then no time in its words is off by more.
_AGED_SHARE: Final = 8
_AGED_NS: Final = _S
#: The pause until the next one, as a multiple of what it costs.
_AGED_PER_COST: Final = 500
#: The proof that ends a job also while somebody has paused it: who is gone comes back for nobody.
_DEAD: Final = "dead"


def step(state: DiagnosisState, event: events.Event) -> Step:
    """The state after an event, and what is to be done."""
    match event:
        case events.RecordsRead():
            return _on_records(state, event)
        case events.AccountReceived(reported=reported):
            peer = Peer(reported, _has_reason(reported.account))
            return replace(state, peers={**state.peers, reported.node: peer}), ()
        case events.HostLost(node=lost):
            peers = {node: peer for node, peer in state.peers.items() if node != lost}
            return replace(state, peers=peers), ()
        case events.RanksEnded(ends=ends):
            return replace(state, ends=ends), ()
        case events.ClockSeen(hold=hold):
            return replace(state, hold=hold), ()
        case events.AccountAsked(request=request):
            return replace(state, request=request), ()
        case events.JobFinished():
            return _on_finished(state, event)
        case events.Dropped():
            return replace(state, phase=DiagnosisPhase.OVER), ()
        case events.AccountMade():
            others = tuple(peer.reported for peer in state.peers.values())
            is_last = state.phase is DiagnosisPhase.LAST
            return state, (instructions.Judge(own=event, others=others, is_last=is_last),)
        case events.VerdictMade():
            return _on_verdict(state, event)
        case events.JudgingFailed():  # an observer that fails says so once
            return replace(state, phase=DiagnosisPhase.OVER), ()
        case events.WaitsRead():
            return _on_waits(state, event)
        case events.AccountsRequested(number=number):
            proof = state.proof
            return replace(state, proof=proof and replace(proof, request=number)), ()
        case events.JobSeen():
            return _on_job_seen(state, event)
        case events.StacksTaken():
            return _on_stacks(state, event)
        case _:
            assert_never(event)


# ------------------------------------------------------------------------------- a look at the records


def _on_records(state: DiagnosisState, look: events.RecordsRead) -> Step:
    if not state.phase.is_looking:
        return state, ()
    state = replace(state, look=look)
    if state.is_ended_by_launcher:  # whatever follows was ordered by a launcher, who says why
        return state, (instructions.FinishJob(at_ns=look.at_ns),)
    if not look.is_root:
        return _send_account_if_new(state)
    before: tuple[instructions.Instruction, ...] = ()
    if look.has_pulse and not state.is_loaded:
        state, before = replace(state, is_loaded=True), (instructions.LoadJudge(),)
    state, then = _confirm_proof(state) if state.proof is not None else _go_on(state)
    return state, (*before, *then)


def _send_account_if_new(state: DiagnosisState) -> Step:
    """Tell the root where the ranks of this host stand, if that is news or it asks."""
    request, triggers = state.request, state.look.triggers or state.look.prompts
    if request.number == state.answered and triggers == state.reported:
        return state, ()
    tell = instructions.SendAccount(
        at_ns=state.look.at_ns, request=request.number, has_found=state.look.latent > 0
    )
    is_asked = request.number > state.answered
    state = replace(state, answered=request.number, reported=triggers)
    return state, (instructions.TakeStacks(ranks=request.ranks), tell) if is_asked else (tell,)


def _go_on(state: DiagnosisState) -> Step:
    """Judge the job if there is a reason to; else say what is due."""
    now_ns = state.look.at_ns
    if state.postponed is not None and not is_held_back(state.postponed, state.hold):
        reports = state.reports and state.reports.again(state.postponed)
        state = replace(state, reports=reports, postponed=None, seen=())
    then: tuple[instructions.Instruction, ...] = ()
    if not state.has_reason:
        state, then = _clear_verdict(replace(state, seen=state.triggers))
    elif (
        state.phase is DiagnosisPhase.WATCHING
        and now_ns >= state.next_ns
        and (state.triggers != state.seen or _is_aged(state))
    ):
        state = replace(state, phase=DiagnosisPhase.JUDGING, seen=state.triggers, aged_ns=None)
        return state, (instructions.MakeAccount(at_ns=now_ns),)
    return state, (*then, *_look_if_due(state, now_ns))


def _is_aged(state: DiagnosisState) -> bool:
    aged_ns = state.aged_ns
    return aged_ns is not None and state.proof is None and state.look.at_ns >= aged_ns


def _clear_verdict(state: DiagnosisState) -> Step:
    """Nothing is wrong any more."""
    if state.judged is None or state.phase is DiagnosisPhase.JUDGING:
        return state, ()
    reports = state.reports and state.reports.take(None, state.look.at_ns)
    state = replace(state, judged=None, version=state.version + 1, reports=reports)
    return _withdraw_verdict(state)


def _withdraw_verdict(state: DiagnosisState) -> Step:
    """What was written is not true any more."""
    return replace(state, is_written=False), (
        instructions.WithdrawVerdict(),
    ) if state.is_written else ()


# ------------------------------------------------------------------------------- verdicts and proofs


def _on_verdict(state: DiagnosisState, event: events.VerdictMade) -> Step:
    judged = event.judged
    if state.phase is DiagnosisPhase.LAST:
        state = replace(state, phase=DiagnosisPhase.OVER)
        if not judged.verdict.has_faults:
            return state, ()
        state = replace(state, judged=judged, version=state.version + 1, is_written=True)
        return state, (instructions.WriteVerdict(judged=judged),)
    if state.phase is not DiagnosisPhase.JUDGING:
        return state, ()
    state = replace(
        state,
        phase=DiagnosisPhase.WATCHING,
        cost_ns=event.cost_ns,
        next_ns=event.at_ns + pause_ns(event.cost_ns),
        proof=None,
    )
    if judged.case is None or judged.case.proven_kind is None:
        return _accept(state, judged, event.at_ns)
    return replace(state, proof=PendingProof(judged=judged)), (
        instructions.ReadWaits(at_ns=event.at_ns, ranks=judged.blocked),
    )


def _on_waits(state: DiagnosisState, event: events.WaitsRead) -> Step:
    proof = state.proof
    if proof is None:
        return state, ()
    if proof.request is None and event.still_wait and event.elsewhere:
        until_ns = event.at_ns + _ANSWER_NS
        state = replace(state, proof=replace(proof, elsewhere=event.elsewhere, until_ns=until_ns))
        assert proof.judged.case is not None
        return state, (instructions.RequestAccounts(ranks=proof.judged.case.finding.ranks),)
    if not event.still_wait:  # it has moved meanwhile: look again
        state = _look_again(state)
        return (state, ()) if proof.request is None else _go_on(state)
    if proof.request is not None:
        state = replace(state, seen=state.triggers)
    return _accept(replace(state, proof=None), proof.judged, event.at_ns)


def _confirm_proof(state: DiagnosisState) -> Step:
    """Go on with a proof once the other hosts have confirmed it by new accounts."""
    proof = state.proof
    assert proof is not None
    if proof.request is None:  # it could not be sent
        return _go_on(replace(state, proof=None))
    reported = [peer.reported for peer in state.peers.values()]
    hosts = {row["rank"]: (one, row) for one in reported for row in one.account.get("ranks", ())}
    for rank in proof.elsewhere:
        one, row = hosts.get(rank, (None, None))
        if one is None or row is None or one.request < proof.request:
            return _go_on(_look_again(state) if state.look.at_ns > proof.until_ns else state)
        if not _still_waits(row, proof.judged, rank):
            return _go_on(_look_again(state))
    if state.phase is DiagnosisPhase.JUDGING:
        return _go_on(_look_again(state))
    return state, (instructions.ReadWaits(at_ns=state.look.at_ns, ranks=proof.judged.blocked),)


def _look_again(state: DiagnosisState) -> DiagnosisState:
    return replace(state, proof=None, seen=())


def _accept(state: DiagnosisState, judged: JudgedVerdict, now_ns: int) -> Step:
    from distdbg.agent.judging.reports import ReportChanges  # imports the diagnosis

    case = judged.case
    reports = (state.reports or ReportChanges()).take(case, now_ns)
    aged_ns = None
    if case is not None and case.proven_kind is None:
        aged_ns = now_ns + fresh_ns(now_ns - reports.since_ns, state.cost_ns)
    state = replace(
        state,
        judged=judged,
        judged_ns=now_ns,
        version=state.version + 1,
        reports=reports,
        aged_ns=aged_ns,
    )
    then: tuple[instructions.Instruction, ...]
    if judged.verdict.is_root_a_fault:
        state, then = replace(state, is_written=True), (instructions.WriteVerdict(judged=judged),)
    else:
        state, then = _withdraw_verdict(state)
    return state, (*then, *_look_if_due(state, now_ns))


# ------------------------------------------------------------------------------- what is said and done


def _look_if_due(state: DiagnosisState, now_ns: int) -> tuple[instructions.Instruction, ...]:
    """Look around, if there may be something to say."""
    reports = state.reports
    if reports is None or state.phase is not DiagnosisPhase.WATCHING:
        return ()
    if state.is_ended_by_launcher:
        return ()  # it was judged as its launcher was ending it, who says why
    is_due = reports.has_stuck or reports.due(now_ns) is not None
    return (instructions.LookAtJob(at_ns=now_ns),) if is_due else ()


def _on_job_seen(state: DiagnosisState, event: events.JobSeen) -> Step:
    if state.reports is None or state.phase is not DiagnosisPhase.WATCHING:
        return state, ()
    reports, freed = state.reports.taken_back(event.states, event.at_ns)
    state = replace(state, reports=reports)
    then: tuple[instructions.Instruction, ...] = tuple(
        instructions.PrintLines(lines=(line,)) for line in freed
    )
    case, judged = reports.due(event.at_ns), state.judged
    if case is None or judged is None or state.proof is not None:
        return state, then
    if event.is_aborted:  # whoever did so has said why
        return replace(state, phase=DiagnosisPhase.OVER), then
    if case.proven_kind is None and event.at_ns - state.judged_ns > _STALE_NS:
        return replace(state, seen=()), then  # it says how long it lasts: look again
    state = replace(state, reports=reports.said(case))
    will_abort = case.proven_kind in state.abort_on
    ranks = case.finding.ranks
    if will_abort and not is_held_back(case, state.hold):
        # The launcher's report has the rest.
        say = instructions.PrintLines(lines=(reports.abort_line(case.finding),))
        state = replace(state, phase=DiagnosisPhase.ABORTING)
        return state, (*then, say, instructions.TakeStacks(ranks=ranks, is_before_abort=True))
    if will_abort:  # somebody looks at the job: it ends after that
        state = replace(state, postponed=case)
    return state, (
        *then,
        instructions.PrintLines(lines=tuple(judged.lines)),
        instructions.TakeStacks(ranks=ranks),
    )


def _on_stacks(state: DiagnosisState, event: events.StacksTaken) -> Step:
    judged = state.judged
    if not event.is_before_abort or state.phase is not DiagnosisPhase.ABORTING or judged is None:
        return state, ()
    case = judged.case
    if case is not None and is_held_back(case, state.hold):  # a prompt has opened since
        return replace(state, phase=DiagnosisPhase.WATCHING, postponed=case), ()
    return replace(state, phase=DiagnosisPhase.OVER), (instructions.AbortJob(judged=judged),)


def _on_finished(state: DiagnosisState, event: events.JobFinished) -> Step:
    """Leave the verdict of how it was, and say nothing."""
    if not state.phase.is_looking:
        return replace(state, phase=DiagnosisPhase.OVER), ()
    is_judging = state.phase is DiagnosisPhase.JUDGING
    state = replace(state, phase=DiagnosisPhase.OVER, look=event.last)
    if event.last.is_root and all(map(has_ended_well, event.states.values())):
        return _withdraw_verdict(state)
    is_judged = state.triggers == state.seen and not is_judging
    if is_judged or not event.last.is_root or not any(state.triggers):
        return state, ()
    if state.ends and all(end.was_asked for end in state.ends if end.is_failure):
        return state, ()  # whoever ended the job knows of it; what ranks hung in before is written
    judged = state.judged
    if judged is not None and judged.case is not None and judged.case.is_cause:
        return state, ()  # what came later was a consequence
    return replace(state, phase=DiagnosisPhase.LAST), (
        instructions.MakeAccount(at_ns=event.last.at_ns),
    )


# ------------------------------------------------------------------------------- accounts of other hosts


def _has_reason(account: Account) -> bool:
    for row in account.get("ranks", ()):
        try:
            state = RankState(row["state"])
        except (KeyError, TypeError, ValueError):
            continue
        if is_of_interest(state):
            return True
    return False


def _still_waits(row: Mapping[str, Any], judged: JudgedVerdict, rank: int) -> bool:
    """Whether a rank of another host is still in the ops in which it was judged to wait."""
    log = judged.session.ranks[rank]
    numbers = [op[0] for op in row.get("ops", ())]
    waits = [(wait[0], wait[1]) for wait in row.get("waits", ())]
    return (
        row.get("pid") == log.pid
        and row.get("state") == RankState.WAITING
        and numbers == list(log.ops.number)
        and waits == [(wait.thread, wait.number) for wait in log.work_waits]
    )


def pause_ns(cost_ns: int) -> int:
    """The pause until the next look at what has changed, after one that cost so much."""
    return min(max(_MIN_PAUSE_NS, _PAUSE_PER_COST * cost_ns), _MAX_PAUSE_NS)


def fresh_ns(lasts_ns: int, cost_ns: int) -> int:
    """How long the words of a verdict that has stood for `lasts_ns` are good, though nothing changes."""
    return max(_AGED_NS, lasts_ns // _AGED_SHARE, cost_ns * _AGED_PER_COST)


def is_held_back(case: ReportedRoot, hold: events.ClockHold) -> bool:
    """Whether a proof does not end the job yet: somebody is at the prompt of a rank, or has paused it."""
    if case.proven_kind == _DEAD:
        return hold is events.ClockHold.DEBUGGED
    return hold is not events.ClockHold.NOBODY
