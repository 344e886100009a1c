"""Runs the diagnosis of one host: makes events of what is there, and carries out what they lead to.

What is judged, said and aborted, and when, is decided in `decide`; here is what reads and writes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, assert_never

from distdbg.agent.judging import diagnosis_events as events
from distdbg.agent.judging import instructions
from distdbg.agent.judging.account import AccountMaker, latent_of, without_ops
from distdbg.agent.judging.decide import step
from distdbg.agent.judging.diagnosis_state import DiagnosisPhase, DiagnosisState
from distdbg.agent.judging.diagnosis_triggers import find_prompts, find_triggers
from distdbg.agent.judging.error_times import ErrorTimes, last_good
from distdbg.agent.judging.verdict_files import (
    ObservationWriter,
    take_cause_stacks,
    targets_of,
    withdraw_verdict,
    write_verdict,
)
from distdbg.errors import RecordError
from distdbg.record.known_marks import LATENT
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.judging.judged_verdict import JudgedVerdict
    from distdbg.agent.steering import Steering
    from distdbg.diagnose.finding import Verdict
    from distdbg.diagnose.session import Session
    from distdbg.export.outlets.source import RunInThread
    from distdbg.follow.roster import Roster

_log = logging.getLogger("distdbg.agent")


class LiveDiagnosis:
    """The diagnosis of one start of the ranks."""

    def __init__(
        self,
        host: str,
        run: str,
        roster: Roster,
        steering: Steering,
        *,
        run_in_judge_thread: RunInThread,
        run_in_thread: RunInThread,
        print_lines: Callable[[list[str]], None],
        abort_on: frozenset[str],
        findings: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        """Stacks are taken by `run_in_thread`, so that none of them holds up who judges."""
        self._run = run
        self._roster = roster
        self._steering = steering
        self._run_in_judge_thread, self._run_in_thread, self._print_lines = (
            run_in_judge_thread,
            run_in_thread,
            print_lines,
        )
        self._findings = findings
        self._maker = AccountMaker(host)
        self._sightings = ObservationWriter()
        self._dates = ErrorTimes()
        #: How many findings of ranks were looked through for latent errors, and how many of those there are.
        self._known = self._latent = 0
        self._events: deque[events.Event] = deque()
        self._is_handling = False
        self.state = DiagnosisState(abort_on=abort_on)
        self.on_event: Callable[[events.Event], None] = lambda _: None
        """Told of each event when it is handled: a list of them can be replayed by `decide.step`."""

    # ------------------------------------------------------------------------------- what others ask

    @property
    def version(self) -> int:
        """Grows with every verdict."""
        return self.state.version

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that is true now; None: nothing is wrong."""
        return self.state.judged.verdict if self.state.judged is not None else None

    @property
    def session(self) -> Session | None:
        """What it was made of."""
        return self.state.judged.session if self.state.judged is not None else None

    def plain_verdict(self) -> dict[str, Any] | None:
        """The same, as in verdict.json."""
        return self.state.judged.plain if self.state.judged is not None else None

    def plain_lines(self) -> list[str]:
        """The same in a few lines."""
        return list(self.state.judged.lines) if self.state.judged is not None else []

    def plain_waits(self) -> list[dict[str, Any]]:
        """The waits between ranks, as they were seen last."""
        if self.state.judged is None:
            return []
        from distdbg.agent.judging.judge import plain_waits

        return plain_waits(self.state.judged)

    # ------------------------------------------------------------------------------- from moment to moment

    def tick(self, now_ns: int) -> None:
        """Look at the records, and at what has come since the last time."""
        watched_ranks = self._roster.watched_ranks
        if not watched_ranks or not self.state.phase.is_looking:
            return
        self._sightings.look(self._roster.folder, watched_ranks.values())
        self._take_in_news()
        self._put(self._read_records(now_ns))

    def finish(self, now_ns: int) -> None:
        """The job is over, or ended by somebody: leave the verdict of how it was, and say nothing."""
        if not self._roster.watched_ranks or not self.state.phase.is_looking:
            self.drop()
            return
        self._roster.settle(now_ns)
        self._take_in_news()
        self._put(events.JobFinished(last=self._read_records(now_ns), states=self._states()))

    def drop(self) -> None:
        """Look no more."""
        self._put(events.Dropped())

    def _put(self, event: events.Event) -> None:
        """Handle an event, and those that its instructions come back with."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                event = self._events.popleft()
                self.on_event(event)
                self.state, todo = step(self.state, event)
                for instruction in todo:
                    self._carry_out(instruction)
        finally:
            self._is_handling = False
            self._events.clear()

    def _carry_out(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.LoadJudge():
                self._run_in_judge_thread(_load, lambda _: None)
            case instructions.FinishJob(at_ns=at_ns):
                self.finish(at_ns)
            case instructions.MakeAccount(at_ns=at_ns):
                self._put(self._make_account(at_ns))
            case instructions.Judge():
                self._judge(instruction)
            case instructions.ReadWaits(at_ns=at_ns, ranks=ranks):
                elsewhere = tuple(rank for rank in ranks if rank not in self._roster.watched_ranks)
                still_wait = self._still_wait(ranks)
                self._put(events.WaitsRead(at_ns=at_ns, still_wait=still_wait, elsewhere=elsewhere))
            case instructions.RequestAccounts(ranks=ranks):
                self._put(events.AccountsRequested(number=self._steering.request_accounts(ranks)))
            case instructions.LookAtJob(at_ns=at_ns):
                is_aborted = self._steering.is_aborted
                self._put(events.JobSeen(at_ns=at_ns, states=self._states(), is_aborted=is_aborted))
            case instructions.SendAccount():
                self._send_account(instruction)
            case instructions.TakeStacks():
                self._take_stacks(instruction)
            case instructions.PrintLines(lines=lines):
                self._print_lines(list(lines))
            case instructions.WriteVerdict(judged=judged):
                write_verdict(self._roster.folder, judged.plain)
            case instructions.WithdrawVerdict():
                withdraw_verdict(self._roster.folder)
            case instructions.AbortJob(judged=judged):
                self._abort(judged)
            case _:
                assert_never(instruction)

    # ------------------------------------------------------------------------------- events

    def _take_in_news(self) -> None:
        """What has changed since, of ends, the clock, other hosts and the root's request."""
        ends = tuple(events.SeenEnd(e.rank, e.was_asked, e.is_failure) for e in self._roster.ends)
        if ends != self.state.ends:
            self._put(events.RanksEnded(ends=ends))
        hold = events.ClockHold.NOBODY
        if self._steering.is_held:
            hold = (
                events.ClockHold.DEBUGGED if self._steering.is_debugged else events.ClockHold.PAUSED
            )
        if hold is not self.state.hold:
            self._put(events.ClockSeen(hold=hold))
        if not self._steering.is_root:
            request = self._steering.account_request()
            if request != self.state.request:
                self._put(events.AccountAsked(request=request))
            return
        accounts = {reported.node: reported for reported in self._steering.accounts()}
        for node in self.state.peers.keys() - accounts.keys():
            self._put(events.HostLost(node=node))
        for node, reported in accounts.items():
            known = self.state.peers.get(node)
            if known is None or known.reported is not reported:
                self._put(events.AccountReceived(reported=reported))

    def _read_records(self, now_ns: int) -> events.RecordsRead:
        watched_ranks = self._roster.watched_ranks.values()
        is_root = self._steering.is_root
        rank_triggers = find_triggers(watched_ranks, now_ns)
        found = self._findings()
        if len(found) != self._known:
            self._known = len(found)
            self._latent = sum(one["type"] in LATENT for one in found)
        return events.RecordsRead(
            at_ns=now_ns,
            is_root=is_root,
            has_pulse=any(watched.pulse for watched in watched_ranks),
            rank_triggers=rank_triggers,
            prompts=() if is_root or rank_triggers else find_prompts(watched_ranks),
            latent=self._latent,
        )

    def _make_account(self, now_ns: int) -> events.AccountMade:
        began_ns = time.thread_time_ns()
        account = self._maker.make(self._roster.watched_ranks.values(), now_ns)
        found = self._dates.put(self._findings(), self._roster.watched_ranks)
        return events.AccountMade(
            at_ns=now_ns,
            wall_ns=time.time_ns(),
            account=account,
            found=found,
            last_good=last_good(found, self._roster.watched_ranks),
            cost_ns=time.thread_time_ns() - began_ns,
        )

    def _states(self) -> dict[int, RankState]:
        states = {row.rank: row.state for row in self._steering.rows_of_others()}
        return states | {
            rank: watched.state for rank, watched in self._roster.watched_ranks.items()
        }

    def _still_wait(self, ranks: Collection[int]) -> bool:
        """Whether those of them that are here wait in the ops in which they were seen."""
        for rank in ranks:
            watched = self._roster.watched_ranks.get(rank)
            if watched is None:
                continue
            if watched.record is None or watched.current_ops is None or watched.pulse is None:
                return False
            try:
                pulse = watched.record.pulse()
                numbers = watched.current_ops.waiting
                if not numbers or not all(map(watched.record.is_in, numbers)):
                    return False
            except RecordError:
                return False
            if pulse._replace(heartbeat_ns=0) != watched.pulse._replace(heartbeat_ns=0):
                return False
        return True

    # ------------------------------------------------------------------------------- instructions

    def _judge(self, wanted: instructions.Judge) -> None:
        run, source = self._run, str(self._roster.folder)
        folder, attempt = self._roster.folder, self._roster.attempt

        def judge() -> tuple[JudgedVerdict, int]:
            from distdbg.agent.judging.judge import (
                judge_job,  # takes long, the first time
                tell_out_of_batches,
            )

            began_ns = time.thread_time_ns()
            judged = judge_job(wanted.own, wanted.others, run=run, source=source, attempt=attempt)
            judged = tell_out_of_batches(judged, folder)
            return judged, time.thread_time_ns() - began_ns + wanted.own.cost_ns

        if not wanted.is_last:
            self._run_in_judge_thread(judge, self._on_judged)
            return
        done: Future[tuple[JudgedVerdict, int]] = Future()
        try:
            done.set_result(judge())
        except Exception as error:  # noqa: BLE001  # an observer that fails says so once
            done.set_exception(error)
        self._on_judged(done)

    def _on_judged(self, done: Future[tuple[JudgedVerdict, int]]) -> None:
        if self.state.phase is DiagnosisPhase.OVER:
            return
        error = done.exception()
        if error is not None:
            _log.warning("the job cannot be judged", exc_info=error)
            self._put(events.JudgingFailed())
            return
        judged, cost_ns = done.result()
        self._take_in_news()
        self._put(events.VerdictMade(at_ns=time.monotonic_ns(), judged=judged, cost_ns=cost_ns))

    def _send_account(self, wanted: instructions.SendAccount) -> None:
        account = self._maker.make(self._roster.watched_ranks.values(), wanted.at_ns)
        if wanted.has_found:
            account["found"] = latent_of(
                self._dates.put(self._findings(), self._roster.watched_ranks)
            )
        try:
            self._steering.put_account(account, wanted.request)
        except ValueError:
            with suppress(ValueError):  # of thousands of ranks even that is too long
                self._steering.put_account(without_ops(account), wanted.request)

    def _take_stacks(self, wanted: instructions.TakeStacks) -> None:
        found = (self._roster.watched_ranks.get(rank) for rank in wanted.ranks)
        watched_ranks = [
            watched for watched in found if watched is not None and not watched.is_gone
        ]
        targets = targets_of(watched_ranks, self._roster.folder)
        taken = events.StacksTaken(is_before_abort=wanted.is_before_abort)
        if not targets:
            self._put(taken)
            return

        def on_taken(done: Future[Any]) -> None:
            if done.exception() is None:
                for one in done.result():
                    watched = self._roster.watched_ranks.get(one.rank)
                    if watched is not None and watched.pid == one.pid:
                        watched.place(one)
                        self._sightings.write(self._roster.folder, watched, one)
            self._take_in_news()
            self._put(taken)

        waiting = {watched.rank for watched in watched_ranks if watched.state is RankState.WAITING}
        self._run_in_thread(lambda: take_cause_stacks(targets, waiting), on_taken)

    def _abort(self, judged: JudgedVerdict) -> None:
        from distdbg.agent.policy import to_abort_words

        words = to_abort_words(judged.verdict, judged.lines)
        _log.warning("aborting the job: %s", words.what)
        self._steering.abort(words)


def _load() -> None:
    """Import what judging takes, before there is any hurry."""
    from distdbg.agent.judging import judge, reports  # noqa: F401
