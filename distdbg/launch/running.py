"""One start of the ranks while it runs, as its launcher sees it: where it is, and who failed first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from distdbg.control.holds import OTHER_HOST, Hold
from distdbg.control.page import read_page
from distdbg.control.words import AGENT, STOPPED, AbortWords
from distdbg.errors import RecordError
from distdbg.launch.attempt import LaunchAttempt
from distdbg.launch.evidence import LostRankEvidence, gather
from distdbg.launch.first_failure import SETTLE_S, find_ended_well, name_failure
from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.outputs import Outputs
from distdbg.launch.rendezvous.notes import Notes
from distdbg.launch.rendezvous.round import LauncherRound
from distdbg.record.stack_file import write_crash


@dataclass(slots=True, kw_only=True)
class Running:
    """One start, from the first rank to the last end."""

    round: LauncherRound
    folder: Path
    number: int
    attempt: LaunchAttempt
    notes: Notes
    outputs: Outputs
    failed_at: float | None = None
    done_at: float | None = None
    failure: str | None = None
    is_kept: bool = False
    """Whether it was said that ranks are not ended because of a debugger."""
    evidence: list[LostRankEvidence] = field(default_factory=list)

    def find_failure(self, host: str, silence_s: float) -> str | None:
        """What failed here, once it is clear enough who was first.

        After `silence_s` another launcher is known to be dead.
        """
        if self.failed_at is None:
            return None
        verdict = self.read_verdict(host)
        if verdict is not None:  # nobody else will say more
            is_settled = time.monotonic() - self.failed_at >= SETTLE_S
            return verdict.what if is_settled or not self.attempt.running else None
        notes = self.notes.read()
        return name_failure(
            self.evidence,
            since_s=time.monotonic() - self.failed_at,
            has_running=bool(self.attempt.running),
            has_others=len(self.round.nodes) > 1,
            ended_well=find_ended_well(self.round, notes, self.notes.left),
            silence_s=silence_s,
        )

    def was_stopped(self, host: str) -> bool:
        """Whether a person ended this start by words on the control page: then it is over for good."""
        words = self._read_abort(host)
        return words is not None and words.type == STOPPED

    def read_verdict(self, host: str) -> AbortWords | None:
        """What the agents have ended this start for; None: they have not."""
        words = self._read_abort(host)
        return words if words is not None and words.by == AGENT else None

    def read_holds(self, host: str) -> tuple[Hold, ...]:
        """The holds on the clock of this start."""
        try:
            holds = read_page(self.folder, host).holds
        except RecordError:
            return ()
        return tuple(hold for hold in holds if not hold.is_gone)

    def is_debugged(self, host: str) -> bool:
        """Whether a rank of any host sits in a debugger."""
        return any(hold.is_of_rank or hold.rank == OTHER_HOST for hold in self.read_holds(host))

    def _read_abort(self, host: str) -> AbortWords | None:
        try:
            return read_page(self.folder, host).abort
        except RecordError:
            return None

    def gather(self) -> list[LostRankEvidence]:
        """Read what the ranks that ended have left."""
        outputs = self.outputs
        for rank, text in outputs.crashes.items():
            write_crash(self.folder, rank, text)
        first = self.round.first_rank
        return gather(
            self.attempt.ends.values(),
            self.folder,
            lambda rank: outputs.error_file(rank - first, self.number),
            lambda rank: outputs.log_file(rank - first, self.number, StdStreams.ERR),
        )
