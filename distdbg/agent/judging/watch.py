"""Runs the diagnosis when ranks make no progress, and acts on its verdict.

    a rank has waited for 250 ms, is stuck, or has died  ->  accounts of all hosts  ->  judged in a thread
    judged  ->  does the proof still hold, here and on other hosts?  ->  stacks  ->  said, written, aborted

It looks again when the set of such ranks has changed, and now and then while it has not: a verdict says how
long things last. What is proven is not diagnosed again. The root's agent diagnoses for all hosts; the
others send it their accounts, and answer its probes (`hosts.accounts`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from distdbg.agent.judging.account import Account, AccountMaker, latent_of, without_ops
from distdbg.agent.judging.confirmation import PendingProof
from distdbg.agent.judging.error_times import ErrorTimes, last_good
from distdbg.agent.judging.pacing import fresh_ns, is_held_back, pause_ns
from distdbg.agent.judging.signature import (
    Signature,
    find_prompts,
    find_signature,
    has_ended_well,
    is_of_interest,
)
from distdbg.agent.judging.verdict_files import (
    ObservationWriter,
    take_blamed,
    targets_of,
    withdraw_verdict,
    write_verdict,
)
from distdbg.errors import RecordError
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.known_marks import LATENT
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.judging.judge import JudgedVerdict
    from distdbg.agent.judging.reports import ReportedRoot
    from distdbg.agent.steering import Steering
    from distdbg.follow.roster import Roster

_S: Final = 1_000_000_000
#: What is said without hurry is no older.
_STALE_NS: Final = _S
#: After which a probe that not all hosts have answered is given up.
_VOUCH_NS: Final = 2 * _S

Work = Callable[[Callable[[], Any], Callable[[Future[Any]], None]], None]

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
        think: Work,
        work: Work,
        say: Callable[[list[str]], None],
        abort_on: frozenset[str],
        findings: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        """`think` and `work` run what takes time, in a thread for judging and in others for stacks."""
        self._run = run
        self._roster = roster
        self._steering = steering
        self._think, self._work, self._say = think, work, say
        self._abort_on = abort_on
        self._findings = findings
        self._maker = AccountMaker(host)
        self._sightings = ObservationWriter()
        self._dates = ErrorTimes()
        self._seen: Signature = ()
        self._told: Signature = ()
        #: How many findings of ranks were looked through for latent errors, and those that there are.
        self._known = 0
        self._latent: Signature = ()
        self._vouched = 0
        self._is_busy = False
        self._is_over = False
        #: Its ranks are gone, or others have come: what is still under way must not touch these.
        self._is_finished = False
        self._is_ready = False
        self._has_written = False
        self._judged_ns = 0
        self._next_ns = 0
        #: When the words of the verdict that stands are too old; None: they have no age.
        self._aged_ns: int | None = None
        self._cost_ns = 0
        self._judged: JudgedVerdict | None = None
        self._doubt: PendingProof | None = None
        self._news: Any = None
        #: What would have ended the job, had nobody held its clock.
        self._postponed: ReportedRoot | None = None
        self.version = 0
        """Grows with every verdict."""

    # ------------------------------------------------------------------------------- what others ask

    def plain_verdict(self) -> dict[str, Any] | None:
        """The verdict that is true now, as in verdict.json; None: nothing is wrong."""
        return self._judged.plain if self._judged is not None else None

    def plain_lines(self) -> list[str]:
        """The same in a few lines."""
        return list(self._judged.lines) if self._judged is not None else []

    def plain_waits(self) -> list[dict[str, Any]]:
        """Who waits for whom, as it was seen last."""
        if self._judged is None:
            return []
        from distdbg.agent.judging.judge import plain_waits

        return plain_waits(self._judged)

    # ------------------------------------------------------------------------------- from moment to moment

    def tick(self, now_ns: int) -> None:
        """Look if there is a reason to."""
        seats = self._roster.seats
        if not seats or self._is_over:
            return
        if not self._is_ready and self._steering.is_root and any(s.pulse for s in seats.values()):
            self._is_ready = True
            self._think(_load, lambda _: None)
        self._sightings.look(self._roster.folder, seats.values())
        if any(end.was_asked for end in self._roster.ends):
            self.finish(now_ns)  # whatever follows was ordered by a launcher, who says why
            return
        here = self._signature_here(now_ns)
        if self._steering.has_tree and not self._steering.is_root:
            self._tell(here or find_prompts(seats.values()), now_ns)
            return
        signature = (here, self._signature_of_others())
        told = self._steering.accounts()
        has_reason = bool(here) or any(_has_reason(one.account) for one in told)
        if self._doubt is not None:
            self._settle(now_ns)
        if self._postponed is not None and not is_held_back(self._postponed, self._steering):
            self._news.again(self._postponed)
            self._postponed, self._seen = None, ()
        if not has_reason:
            self._seen = signature
            self._forget(now_ns)
        elif (
            (signature != self._seen or self._is_aged(now_ns))
            and not self._is_busy
            and now_ns >= self._next_ns
        ):
            self._seen = signature
            self._look(now_ns)
        if self._news is not None and not self._is_busy:
            self._speak(now_ns)

    def finish(self, now_ns: int) -> None:
        """The job is over, or ended by somebody: leave the verdict of how it was, and say nothing."""
        self._is_finished = True
        if self._is_over or not self._roster.seats:
            return
        self._is_over = True
        self._roster.settle(now_ns)
        signature = (self._signature_here(now_ns), self._signature_of_others())
        is_judged = signature == self._seen and not self._is_busy
        if self._steering.is_root and all(map(has_ended_well, self._states().values())):
            self._withdraw()
            return
        if is_judged or not self._steering.is_root or not any(signature):
            return
        if all(end.was_asked for end in self._roster.ends if end.is_failure) and self._roster.ends:
            return  # whoever ended the job knows of it; what ranks hung in before is written
        if (
            self._judged is not None
            and self._judged.case is not None
            and self._judged.case.is_cause
        ):
            return  # what came later was a consequence
        judge = self._prepare(now_ns)
        try:
            judged, _ = judge()
        except Exception:  # noqa: BLE001  # an observer that fails says so once
            _log.warning("the job cannot be judged", exc_info=True)
            return
        if judged.verdict.has_faults:
            self._judged = judged
            self.version += 1
            self._write(judged)

    def _write(self, judged: JudgedVerdict) -> None:
        self._has_written = True
        write_verdict(self._roster.folder, judged.plain)

    def _withdraw(self) -> None:
        """What was written is not true any more."""
        if self._has_written:
            self._has_written = False
            withdraw_verdict(self._roster.folder)

    def drop(self) -> None:
        """Look no more."""
        self._is_over = self._is_finished = True

    def _signature_here(self, now_ns: int) -> Signature:
        """Where its ranks stand, and what they have found themselves: leaked work, arrays in two ops."""
        found = self._findings()
        latent = sum(one["type"] in LATENT for one in found) if len(found) != self._known else -1
        if latent >= 0:
            self._known, self._latent = len(found), (("latent", latent),) if latent else ()
        return (*find_signature(self._roster.seats.values(), now_ns), *self._latent)

    def _signature_of_others(self) -> Signature:
        return tuple((one.node, one.made_ns) for one in self._steering.accounts())

    # ------------------------------------------------------------------------------- this host tells

    def _tell(self, signature: Signature, now_ns: int) -> None:
        """Tell the root where the ranks of this host stand, if that is news or it asks."""
        vouch = self._steering.vouch()
        if vouch.number == self._vouched and signature == self._told:
            return
        if vouch.number > self._vouched:
            blamed = [seat for rank in vouch.ranks if (seat := self._roster.seats.get(rank))]
            self._take_stacks(blamed, lambda: None)
        self._vouched, self._told = vouch.number, signature
        account = self._account(now_ns)
        if self._latent:
            account["found"] = latent_of(self._dates.put(self._findings(), self._roster.seats))
        try:
            self._steering.tell(account, vouch.number)
        except ValueError:
            with suppress(ValueError):  # of thousands of ranks even that is too long
                self._steering.tell(without_ops(account), vouch.number)

    def _account(self, now_ns: int) -> Account:
        return self._maker.make(self._roster.seats.values(), now_ns)

    # ------------------------------------------------------------------------------- judging

    def _is_aged(self, now_ns: int) -> bool:
        return self._aged_ns is not None and self._doubt is None and now_ns >= self._aged_ns

    def _look(self, now_ns: int) -> None:
        self._is_busy = True
        self._aged_ns = None
        self._think(self._prepare(now_ns), self._on_judged)

    def _prepare(self, now_ns: int) -> Callable[[], tuple[JudgedVerdict, int]]:
        """What is to be judged, as it is now; what it returns gives the verdict, and what it has cost."""
        from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount

        began_ns = time.thread_time_ns()
        heard = [ReceivedAccount(self._account(now_ns), now_ns)]
        heard += [ReceivedAccount(one.account, one.made_ns) for one in self._steering.accounts()]
        found = self._dates.put(self._findings(), self._roster.seats)
        facts = LiveFacts(
            run=self._run,
            source=str(self._roster.folder),
            attempt=self._roster.attempt,
            now_ns=now_ns,
            wall_ns=time.time_ns(),
            found=found,
            last_good=last_good(found, self._roster.seats),
        )
        here_ns = time.thread_time_ns() - began_ns

        folder = self._roster.folder

        def judge() -> tuple[JudgedVerdict, int]:
            from distdbg.agent.judging.batches import tell_out_of_batches
            from distdbg.agent.judging.judge import judge_accounts  # takes long, the first time

            began_ns = time.thread_time_ns()
            judged = tell_out_of_batches(judge_accounts(heard, facts), folder)
            return judged, time.thread_time_ns() - began_ns + here_ns

        return judge

    def _on_judged(self, done: Future[Any]) -> None:
        self._is_busy = False
        if self._is_finished:
            return
        now_ns = time.monotonic_ns()
        error = done.exception()
        if error is not None:
            _log.warning("the job cannot be judged", exc_info=error)
            self._is_over = True  # an observer that fails says so once
            return
        judged, cost_ns = done.result()
        self._cost_ns = cost_ns
        self._next_ns = now_ns + pause_ns(cost_ns)
        self._doubt = None
        if judged.case is not None and judged.case.proof is not None:
            if not self._still_waits(judged.hopeless):
                self._seen = ()  # it has moved meanwhile: look again
                return
            elsewhere = [rank for rank in judged.hopeless if rank not in self._roster.seats]
            if elsewhere:
                vouch = self._steering.ask_vouch(judged.case.finding.ranks)
                self._doubt = PendingProof(judged, vouch, now_ns + _VOUCH_NS)
                return
        self._accept(judged, now_ns)

    def _settle(self, now_ns: int) -> None:
        """Whether the other hosts have vouched for what was proven by their accounts."""
        doubt = self._doubt
        assert doubt is not None
        told = self._steering.accounts()
        hosts = {row["rank"]: (one, row) for one in told for row in one.account.get("ranks", ())}
        for rank in doubt.judged.hopeless:
            if rank in self._roster.seats:
                continue
            one, row = hosts.get(rank, (None, None))
            if one is None or row is None or one.vouch < doubt.vouch:
                if now_ns > doubt.until_ns:
                    self._doubt, self._seen = None, ()
                return
            if not _stands_as(row, doubt.judged, rank):
                self._doubt, self._seen = None, ()
                return
        if self._is_busy or not self._still_waits(doubt.judged.hopeless):
            self._doubt, self._seen = None, ()
            return
        self._doubt = None
        self._seen = (self._signature_here(now_ns), self._signature_of_others())
        self._accept(doubt.judged, now_ns)

    def _still_waits(self, ranks: Collection[int]) -> bool:
        """Whether those of them that are here wait in the ops in which they were seen."""
        for rank in ranks:
            seat = self._roster.seats.get(rank)
            if seat is None:
                continue
            if seat.record is None or seat.standing is None or seat.pulse is None:
                return False
            try:
                pulse = seat.record.pulse()
                numbers = seat.standing.waiting
                if not numbers or not all(map(seat.record.is_in, numbers)):
                    return False
            except RecordError:
                return False
            if pulse._replace(heartbeat_ns=0) != seat.pulse._replace(heartbeat_ns=0):
                return False
        return True

    # ------------------------------------------------------------------------------- what follows

    def _accept(self, judged: JudgedVerdict, now_ns: int) -> None:
        from distdbg.agent.judging.reports import ReportChanges

        if self._news is None:
            self._news = ReportChanges()
        self._judged, self._judged_ns = judged, now_ns
        self.version += 1
        self._news.take(judged.case, now_ns)
        self._aged_ns = None
        if judged.case is not None and judged.case.proof is None:
            self._aged_ns = now_ns + fresh_ns(now_ns - self._news.since_ns, self._cost_ns)
        if judged.verdict.is_root_a_fault:
            self._write(judged)
        else:
            self._withdraw()
        self._speak(now_ns)

    def _forget(self, now_ns: int) -> None:
        """Nothing is wrong any more."""
        if self._judged is not None and not self._is_busy:
            self._judged = None
            self._withdraw()
            self.version += 1
            self._news.take(None, now_ns)

    def _speak(self, now_ns: int) -> None:
        if any(end.was_asked for end in self._roster.ends):
            return  # it was judged as its launcher was ending it, who says why
        for line in self._news.taken_back(self._states(), now_ns):
            self._say([line])
        case = self._news.due(now_ns)
        if case is None or self._judged is None or self._doubt is not None:
            return
        if self._steering.is_aborted:
            self._is_over = True  # whoever did so has said why
            return
        if case.proof is None and now_ns - self._judged_ns > _STALE_NS:
            self._seen = ()  # it says how long it lasts: look again
            return
        self._news.said(case)
        judged = self._judged
        will_abort = case.proof in self._abort_on
        if will_abort and not is_held_back(case, self._steering):
            self._say([self._news.abort_line(case.finding)])  # the launcher's report has the rest
        else:
            self._say(judged.lines)
        if case.proof is None:
            self._blame(case.finding.ranks, lambda: None)
        elif case.proof in self._abort_on and is_held_back(case, self._steering):
            self._postponed = case  # somebody looks at the job: it ends after that
            self._blame(case.finding.ranks, lambda: None)
        elif case.proof in self._abort_on:
            self._is_over = True
            ranks = case.finding.ranks
            self._blame(ranks, lambda: self._abort(judged))
        else:
            self._blame(case.finding.ranks, lambda: None)

    def _abort(self, judged: JudgedVerdict) -> None:
        if self._is_finished:
            return
        case = judged.case
        if case is not None and is_held_back(case, self._steering):
            self._is_over = False  # a prompt has opened since
            self._postponed = case
            return
        from distdbg.agent.policy import to_words

        words = to_words(judged.verdict, judged.lines)
        _log.warning("aborting the job: %s", words.what)
        self._steering.abort(words)

    def _blame(self, ranks: Iterable[int], then: Callable[[], None]) -> None:
        """Take the stacks of those that live here, and write where they are; then go on."""
        seats = [seat for rank in ranks if (seat := self._roster.seats.get(rank))]
        self._take_stacks([seat for seat in seats if not seat.is_gone], then)

    def _take_stacks(self, seats: list[WatchedRank], then: Callable[[], None]) -> None:
        targets = targets_of(seats, self._roster.folder)
        if not targets:
            then()
            return

        def on_taken(done: Future[Any]) -> None:
            if done.exception() is None:
                for one in done.result():
                    seat = self._roster.seats.get(one.rank)
                    if seat is not None and seat.pid == one.pid:
                        seat.place(one)
                        self._sightings.write(self._roster.folder, seat, one)
            then()

        waiting = {seat.rank for seat in seats if seat.state is RankState.WAITING}
        self._work(lambda: take_blamed(targets, waiting), on_taken)

    def _states(self) -> dict[int, RankState]:
        states = {row.rank: row.state for row in self._steering.rows_of_others()}
        return states | {rank: seat.state for rank, seat in self._roster.seats.items()}


def _load() -> None:
    """Import what judging takes, before there is any hurry."""
    from distdbg.agent.judging import judge, reports  # noqa: F401


def _has_reason(account: Account) -> bool:
    for row in account.get("ranks", ()):
        try:
            state = RankState(row["state"])
        except (KeyError, TypeError, ValueError):
            continue
        if is_of_interest(state):
            return True
    return False


def _stands_as(row: dict[str, Any], judged: JudgedVerdict, rank: int) -> bool:
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
