"""One launcher's part in a job: meet the others, start the ranks, watch, and do what follows."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

from distdbg.command import print_error
from distdbg.errors import DistError, RendezvousClosedError, RendezvousError
from distdbg.launch.agent_link import AGENT
from distdbg.launch.attempt import LaunchAttempt
from distdbg.launch.console import LOOK_S, LauncherTerminal
from distdbg.launch.decide import Decision, LauncherAction, Situation, decide
from distdbg.launch.events import EventLog
from distdbg.launch.final_report import FinalReport
from distdbg.launch.options import RunOptions
from distdbg.launch.own_host import OwnHost
from distdbg.launch.ports import HeldPort
from distdbg.launch.rank_activity import what_ranks_do
from distdbg.launch.rendezvous.notes import LauncherNote, Notes
from distdbg.launch.rendezvous.registry import make_rendezvous
from distdbg.launch.rendezvous.round import (
    Closing,
    LauncherRound,
    NodeFacts,
    Rendezvous,
    RendezvousInterrupted,
)
from distdbg.launch.rendezvous.settings import RendezvousSettings
from distdbg.launch.rendezvous_settings import C10D, STATIC
from distdbg.launch.report import JobOutcome, exit_code
from distdbg.launch.running import Running
from distdbg.launch.signals import Signals
from distdbg.launch.start_facts import StartFacts
from distdbg.launch.stopped_ranks import StoppedRanks
from distdbg.launch.warden import Warden
from distdbg.record import folders
from distdbg.record.ends import RankEnd, signal_name
from distdbg.record.folders import agent_socket, record_name
from distdbg.record.holes import give_back

#: How long ranks that ended well wait for those of other hosts, as torchrun.
_OTHERS_S = 300.0
_HEAR_S = 60.0
_DRAIN_S = 5.0
_AGENT_S = 1.0
#: How often an agent that is gone is started again.
_MAX_AGENTS = 3
#: What a failure leads to.
_ENDING = (LauncherAction.RESTART, LauncherAction.END_FAILED)
#: `timeout` and some shells send a signal twice; that is one wish.
_SAME_SIGNAL_NS = 200_000_000


class LaunchedJob:
    """What one launcher keeps between two starts."""

    def __init__(
        self, options: RunOptions, warden: Warden, signals: Signals, stack: ExitStack
    ) -> None:
        self._options = options
        self._warden = warden
        self._signals = signals
        self._stack = stack
        self._here = OwnHost(options, warden, stack)
        self._events = EventLog(options.event_log_handler, print_error, time.time_ns)
        self._restarts = 0
        self._final_report = FinalReport(options, self._here)
        is_ours = options.rdzv_backend in (STATIC, C10D)
        conf = options.rdzv_conf if is_ours else {}
        #: After which another launcher is known to be dead.
        self._silence_s = RendezvousSettings.read(conf).silence_s
        self._held: HeldPort | None = None
        self._console = LauncherTerminal.here()
        self._stopped = StoppedRanks(self._here.name)
        if self._console is not None:
            stack.callback(self._console.close)

    def run(self) -> int:
        """Start the ranks until it is over; returns the exit code."""
        code = self._run_rounds()
        self._events.write_event("done", run=self._here.run, exit_code=code)
        return code

    def _run_rounds(self) -> int:
        rendezvous = make_rendezvous(self._options)
        self._stack.callback(rendezvous.shutdown)
        self._signals.on_signal = rendezvous.interrupt
        if self._signals.received:  # before anybody was there to be told
            rendezvous.interrupt()
        facts = NodeFacts(
            name=f"{self._here.name}-{os.getpid()}-{os.urandom(3).hex()}",
            addr=self._address(),
            host=self._here.name,
            nproc=self._options.nproc,
            role=self._options.role,
        )
        takes_part = False
        try:
            while True:
                takes_part = False
                try:
                    round_ = rendezvous.next_round(facts)
                except RendezvousInterrupted:
                    folder = "" if self._here.run_folder is None else str(self._here.run_folder)
                    number = self._signals.received[0]
                    stopped = JobOutcome(
                        interrupted=number,
                        run_folder=folder,
                        attempt=self._restarts,
                        max_restarts=self._options.max_restarts,
                    )
                    return self._final_report.report(stopped)
                except RendezvousClosedError:
                    closing = rendezvous.closing()
                    if closing is not None and closing.is_well:
                        self._final_report.announce(f"not needed: {closing.reason}")
                        return 0
                    raise
                takes_part = True
                running = self._start(round_)
                decision = self._watch(rendezvous, running)
                if decision.action is not LauncherAction.RESTART:
                    return self._end(rendezvous, running, decision)
                self._stop(running, signal.SIGTERM)
                if decision.uses_restart:
                    code = _code_of_failure(rendezvous, running)
                    self._final_report.failed(running, decision.reason, self._restarts, code)
                self._restarts += decision.uses_restart
                self._events.write_event(
                    "restart",
                    reason=decision.reason,
                    used=self._restarts,
                    of=self._options.max_restarts,
                )
                count = f"{self._restarts} of {self._options.max_restarts} restarts used"
                if decision.uses_restart:
                    self._final_report.announce(
                        f"restarting all ranks ({self._final_report.number(self._restarts)})"
                    )
                else:
                    self._final_report.announce(
                        f"{decision.reason}; restarting all ranks ({count})"
                    )
        except DistError as error:
            if takes_part:  # the others would wait for the ranks here
                rendezvous.close(error.what)
            raise
        finally:
            self._here.end_agent()

    # ------------------------------------------------------------------------------------ starting

    def _start(self, round_: LauncherRound) -> Running:
        start = self._agree(round_)
        self._restarts = start.restarts
        number = round_.number
        folder, outputs = self._here.prepare(start.run, number)
        attempt = LaunchAttempt(
            self._warden, self._here.name, folder, self._tell_end, self._here.agent.on_end
        )
        running = Running(
            round=round_,
            folder=folder,
            number=number,
            attempt=attempt,
            notes=Notes(round_),
            outputs=outputs,
        )
        try:
            for local_rank in range(self._options.nproc):
                if self._signals.received:
                    break  # those that run are ended at once
                self._here.start_rank(running, start, local_rank)
        except BaseException:
            attempt.stop(signal.SIGKILL, 0.0, lambda: True)
            raise
        self._events.write_event(
            "start",
            run=start.run,
            folder=str(folder),
            attempt=number,
            host=self._here.name,
            node_rank=round_.node_rank,
            world_size=sum(node.nproc for node in round_.nodes),
            pids=attempt.pids,
        )
        self._here.introduce(running)
        return running

    def _tell_end(self, end: RankEnd) -> None:
        self._events.write_event("end", **json.loads(end.to_json()))
        self._here.agent.tell_end(end)

    def _agree(self, round_: LauncherRound) -> StartFacts:
        """What node 0 says, or what this launcher says as node 0."""
        if round_.node_rank > 0:
            return StartFacts.receive(round_, _HEAR_S)
        options = self._options
        addr = options.master_addr or round_.nodes[0].addr
        if self._held is not None:
            self._held.release()
        self._held = self._stack.enter_context(HeldPort(addr, options.master_port or 0))
        facts = StartFacts(
            run=self._here.run or folders.read_run_name(self._here.environ),
            restarts=self._restarts,
            master_addr=addr,
            master_port=self._held.number,
        )
        facts.publish(round_)
        return facts

    # ------------------------------------------------------------------------------------ watching

    def _watch(self, rendezvous: Rendezvous, running: Running) -> Decision:
        """Until something has to be done."""
        poll = select.poll()
        poll.register(self._warden.fileno(), select.POLLIN)
        poll.register(self._signals.fileno(), select.POLLIN)
        attempt = running.attempt
        while True:
            ended = attempt.watch(0.0)
            if ended and attempt.failures:
                running.evidence = running.gather()
                running.failed_at = running.failed_at or time.monotonic()
            left = [end.rank for end in ended if not end.is_failure]
            if left and attempt.running and len(running.round.nodes) > 1:
                running.notes.write_left(left)
            if not attempt.running and running.failed_at is None and running.done_at is None:
                running.done_at = time.monotonic()
                running.notes.write(LauncherNote(kind="finished"))
            if (
                running.failure is None
                and (failure := running.find_failure(self._here.name, self._silence_s)) is not None
            ):
                # Before the next round is asked for: others would take it for one that costs nothing.
                running.failure = failure
                code = exit_code(JobOutcome(evidence=running.evidence))
                running.notes.write(LauncherNote(kind="failed", what=failure, exit_code=code))
            self._here.keep_agent(running)
            decision = decide(self._situation(rendezvous, running))
            if decision.action is LauncherAction.RESTART and running.was_stopped(self._here.name):
                return Decision(action=LauncherAction.END_FAILED, reason="the job was stopped")
            if decision.action is not LauncherAction.GO_ON and not self._keeps(running, decision):
                return decision
            self._lend_terminal(running)
            is_settling = running.failed_at is not None and not running.is_kept
            wait_s = 0.02 if is_settling else self._options.monitor_interval_s
            poll.poll((wait_s if self._console is None else min(wait_s, LOOK_S)) * 1e3)
            self._signals.drain()
            for number in self._signals.take_notices():
                count = attempt.notify(number)
                self._final_report.announce(
                    f"{signal_name(number)} was sent to the launcher; it went on to {count} ranks"
                )

    def _lend_terminal(self, running: Running) -> None:
        if self._console is not None:
            # The agents of other hosts tell that of the first one.
            agent = agent_socket(self._here.run, self._here.name)
            knows_all = len(running.round.nodes) > 1 and running.round.node_rank == 0
            self._console.look(
                self._here.run,
                lambda: self._stopped.find(
                    running.read_holds(self._here.name), agent if knows_all else None
                ),
            )

    def _keeps(self, running: Running, decision: Decision) -> bool:
        """Whether ranks that are to be ended for a failure are not, because one of them is debugged."""
        if decision.action not in _ENDING:
            return False
        host = self._here.name
        if running.was_stopped(host) or not running.is_debugged(host):
            return False
        if not running.is_kept:
            running.is_kept = True
            self._final_report.announce(
                f"{decision.reason}; no rank is terminated while one is in a debugger"
            )
        return True

    def _situation(self, rendezvous: Rendezvous, running: Running) -> Situation:
        waiting, begun = 0, False
        lost: tuple[str, ...] = ()
        closing: Closing | None = None
        try:
            closing = rendezvous.closing()
            waiting = rendezvous.waiting_count()
            begun = rendezvous.next_has_begun()
            lost = rendezvous.lost_nodes()
        except RendezvousError as error:
            closing = closing or Closing(reason=error.what, is_well=False)
        received = self._signals.received
        done_at = running.done_at
        if done_at is not None and running.is_debugged(self._here.name):
            done_at = running.done_at = (
                time.monotonic()
            )  # others take as long as somebody looks at them
        left = self._options.max_restarts - self._restarts
        if running.failure is not None and running.was_stopped(self._here.name):
            left = 0
        return Situation(
            name=running.round.nodes[running.round.node_rank].name,
            nodes=tuple(node.name for node in running.round.nodes),
            running=len(running.attempt.running),
            failure=running.failure,
            restarts_left=left,
            notes=running.notes.read(),
            waiting_count=waiting,
            next_has_begun=begun,
            lost=lost,
            closing=closing,
            signal=signal_name(received[0]) if received else None,
            can_replace=self._options.rdzv_backend != STATIC,
            has_waited_enough=done_at is not None
            and not running.round.serves  # the others' store would end with this launcher
            and time.monotonic() - done_at > _OTHERS_S,
        )

    # -------------------------------------------------------------------------------------- ending

    def _stop(self, running: Running, signum: int, stopped_by: int | None = None) -> None:
        """End the ranks of a start and whatever they have started, and show their last lines."""
        if self._console is not None:
            self._console.end(
                *((0.0,) if self._signals.received or running.attempt.running else ())
            )
        since_ns = time.monotonic_ns() + _SAME_SIGNAL_NS
        running.attempt.stop(
            signum,
            self._options.shutdown_timeout_s,
            is_hurried=lambda: self._signals.last_ns > since_ns,
            stopped_by=stopped_by,
        )
        self._warden.sweep(keep=[AGENT])
        self._here.drain()
        for rank in running.attempt.pids:
            give_back(running.folder / record_name(rank))

    def _end(self, rendezvous: Rendezvous, running: Running, decision: Decision) -> int:
        if decision.action is LauncherAction.END_FAILED:
            code = _code_of_failure(rendezvous, running)
            rendezvous.close(decision.reason, exit_code=code)
        elif decision.action is LauncherAction.LEAVE and running.was_stopped(self._here.name):
            rendezvous.close("the job was stopped")
        elif decision.action is LauncherAction.LEAVE and running.attempt.running:
            # Before its ranks are gone: the others would look for why theirs fail.
            running.notes.write(LauncherNote(kind="leaving", what=decision.reason))
        received = self._signals.received
        doing = what_ranks_do(running.folder, running.attempt.pids) if received else None
        stopped_by = received[0] if received else None
        self._stop(running, stopped_by or signal.SIGTERM, stopped_by)
        if decision.action is LauncherAction.END_WELL:
            rendezvous.close(decision.reason, is_well=True)
            self._final_report.succeeded(self._restarts)
            return 0
        if decision.action is LauncherAction.LEAVE_WELL:
            self._final_report.succeeded(self._restarts)
            return 0
        code = _code_of_failure(rendezvous, running)
        outcome = replace(
            self._final_report.outcome(
                running,
                decision.reason,
                self._restarts,
                code,
                doing,
            ),
            interrupted=stopped_by,
        )
        return self._final_report.report(outcome)

    def _address(self) -> str:
        """Where the ranks of other hosts reach this one."""
        if self._options.local_addr:
            return self._options.local_addr
        return "127.0.0.1" if self._options.standalone else socket.getfqdn()


def _code_of_failure(rendezvous: Rendezvous, running: Running) -> int:
    """The exit code of the rank that failed first, on whichever host."""
    for note in running.notes.read().values():
        if note.kind == "failed":
            return note.exit_code
    # The launcher that closed the job and served the store may be gone before its note was read.
    with suppress(RendezvousError):
        closing = rendezvous.closing()
        if closing is not None:
            return closing.exit_code
    return 1
