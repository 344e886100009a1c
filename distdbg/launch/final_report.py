"""What a launcher says of attempts that have failed: in short while others follow, in full at the end."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from distdbg.command import print_error
from distdbg.control.words import AbortWords
from distdbg.diagnose.headline import FAILED
from distdbg.launch.cause import Cause, say_attempts
from distdbg.launch.ddp_errors import is_ddp_error
from distdbg.launch.diagnosis import DEADLOCK, MISSING_RANK, Diagnosis, diagnose_run
from distdbg.launch.first_failure import hosts_of_others
from distdbg.launch.hints import share_of
from distdbg.launch.last_seen import gave_up_ns, read_last_seen
from distdbg.launch.memory import memory_limit
from distdbg.launch.options import RunOptions
from distdbg.launch.own_host import OwnHost
from distdbg.launch.rank_activity import HostActivity, what_ranks_do
from distdbg.launch.report import ERRORS_OF_KINDS, JobOutcome, cause_of, exit_code, report
from distdbg.launch.report_layout import wants_colour, width_of
from distdbg.launch.root_cause import LossRole, RootCause, find_root_cause
from distdbg.launch.running import Running
from distdbg.record.ends import TIMERS, RankEnd
from distdbg.record.printable import printable
from distdbg.record.stop_order import read_stop_order

#: Errors of which the source may say more than their line.
_OF_SOURCE: Final = ("FileNotFoundError", "IndexError")


#: Ends that are closer than this are one blow: the same as `analyze` has.
_ONE_BLOW_NS: Final = 10**9
_SIGNALS: Final = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


class FinalReport:
    """The report of one launcher; `restarts` is how many are used up."""

    def __init__(self, options: RunOptions, here: OwnHost) -> None:
        self._options = options
        self._here = here
        self._failed: list[Cause] = []
        #: The number in the name of the last one's folder: starts for other reasons have one as well.
        self._last_folder = 0

    def announce(self, line: str) -> None:
        print_error(f"distdbg run: {line}")

    def failed(self, running: Running, reason: str, restarts: int, code: int) -> None:
        """An attempt has failed, and another one follows."""
        cause = cause_of(self.outcome(running, reason, restarts, code))
        if cause is None:  # nothing failed here, and of the other hosts only the reason is known
            cause = Cause(word=FAILED, what=reason, attempt=restarts + 1)
        self._failed.append(cause)
        self._last_folder = running.number
        first, *others = cause.lines
        self.announce(printable(f"{self.number(restarts)}: {first}"))
        for line in others:
            print_error(f"  {printable(line)}")

    def succeeded(self, restarts: int) -> None:
        """After failures only: by now they are far above, behind the output of the ranks."""
        if losses := self._here.losses():
            self.announce(losses)
        if not self._failed:
            return
        self.announce(f"{self.number(restarts)} succeeded")
        for line in say_attempts(self._failed):
            print_error(f"  {printable(line)}")
        if run := self._run_to_analyze():
            print_error(f"  next: distdbg analyze --attempt {self._last_folder} {run}")

    def number(self, restarts: int) -> str:
        """'attempt 2 of 3': starts that use up no restart are not counted."""
        return f"attempt {restarts + 1} of {self._options.max_restarts + 1}"

    def outcome(
        self,
        running: Running,
        reason: str,
        restarts: int,
        code: int,
        before: HostActivity | None = None,
    ) -> JobOutcome:
        """What is known of a start whose ranks are gone.

        `before`: what they did when a signal came that ended the launcher; None: none did.
        """
        is_stopping = before is not None
        evidence = running.gather()
        found = find_root_cause(evidence)
        ends = [one.end for one in evidence]
        struck = None if is_stopping else struck_at_once(ends, len(running.attempt.pids))
        doing = HostActivity()
        if is_stopping or struck is not None:
            doing = before or what_ranks_do(running.folder, running.attempt.pids)
        was_waiting = bool(doing.hang or doing.waited)
        verdict = running.read_verdict(self._here.name)
        return JobOutcome(
            evidence=evidence,
            run_folder=str(self._here.run_folder or ""),
            attempt=restarts,
            max_restarts=self._options.max_restarts,
            because="" if running.failure is not None else reason,
            is_elsewhere=len(running.round.nodes) > 1,
            verdict=verdict,
            seen=read_last_seen(running.folder, running.attempt.pids, gave_up_ns(found)),
            diagnosis=self._diagnose(running, found, verdict, was_waiting),
            memory_limit=memory_limit(),
            hosts=hosts_of_others(running.round),
            struck=struck,
            doing=doing.lines,
            hang=doing.hang,
            waited=doing.waited,
            code=code,
        )

    def report(self, outcome: JobOutcome) -> int:
        """The launcher's last words; returns the exit code."""
        outcome = replace(
            outcome,
            before=tuple(self._failed),
            losses=self._here.losses(),
            stopped_by="" if outcome.interrupted is None else self._who_asked(),
            analyze=self._run_to_analyze() if outcome.run_folder else "",
        )
        is_terminal = _is_terminal()
        text = report(
            outcome,
            width=width_of(is_terminal, shutil.get_terminal_size().columns),
            is_coloured=wants_colour(is_terminal, os.environ),
        )
        if text:
            print_error(text.rstrip("\n"))
        return exit_code(outcome)

    def _diagnose(
        self,
        running: Running,
        found: RootCause | None,
        verdict: AbortWords | None,
        was_waiting: bool,
    ) -> Diagnosis | None:
        """Only where processes alone do not show the cause, and all records are on this host."""
        is_deadlock = verdict is not None and verdict.type == DEADLOCK
        is_mismatch = found is not None and found.first[0].error_type in ERRORS_OF_KINDS.values()
        is_of_ddp = found is not None and is_ddp_error(found.first[0].reason)
        is_reported = is_of_ddp or (
            found is not None and found.role in (LossRole.LEAVER, LossRole.SUSPECT, LossRole.VICTIM)
        )
        # Where it came last says what grew.
        is_large = found is not None and share_of(found) is not None
        # The source says where a timer is set, and where the program sends signals itself.
        end = found.first[0].end if found is not None else None
        is_signal = end is not None and (
            end.signal in (*TIMERS, signal.SIGSEGV, signal.SIGPIPE) or end.is_sender_unknown
        )
        # ... which line makes the name of a file that another rank has taken, or data that do not fit.
        is_file = found is not None and found.first[0].error_type in _OF_SOURCE
        left = found.first[0].record if found is not None else None
        is_latent = left is not None and left.has_latent_errors
        is_of_source = is_signal or is_file or is_latent
        # An agent has found a rank missing whose exit code nobody knew then.
        is_left = verdict is not None and verdict.type == MISSING_RANK
        is_died = is_left and found is not None and found.role is LossRole.CAUSE
        is_known = is_deadlock or is_died or is_mismatch or is_reported or is_large or is_of_source
        if len(running.round.nodes) > 1 or not (is_known or was_waiting):
            return None
        return diagnose_run(
            str(self._here.run_folder or ""),
            running.folder,
            running.attempt.pids,
            with_notes=was_waiting,
        )

    def _who_asked(self) -> str:
        folder = self._here.run_folder
        return "" if folder is None else read_stop_order(folder)

    def _run_to_analyze(self) -> str:
        """What `distdbg analyze` is to be called with."""
        by_name = self._options.run_dir is None and self._here.run
        return self._here.run if by_name else str(self._here.run_folder or "")


def _is_terminal() -> bool:
    try:
        return os.isatty(2)
    except OSError:
        return False


def struck_at_once(ends: Sequence[RankEnd], count: int) -> int | None:
    """The signal that ended all of `count` ranks; None: they ended otherwise, or one after the other."""
    if len(ends) < max(count, 2):
        return None
    numbers = {one.signal for one in ends if one.cause == "signal"}
    number = numbers.pop() if len(numbers) == 1 else None
    if number not in _SIGNALS or any(one.cause != "signal" for one in ends):
        return None
    times = [one.ended_ns for one in ends]
    # One that died alone makes the launcher end the others, which it was asked to.
    is_by_others = sum(not one.was_asked for one in ends) > len(ends) // 2
    return number if is_by_others and max(times) - min(times) <= _ONE_BLOW_NS else None
