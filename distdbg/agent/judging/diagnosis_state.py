"""The state of the diagnosis of one start of the ranks. Pure; `decide` makes the next of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from distdbg.agent.judging.diagnosis_events import ClockHold, RecordsRead, SeenEnd
from distdbg.agent.judging.diagnosis_triggers import Triggers
from distdbg.hosts.accounts import AccountRequest, HostAccountState

if TYPE_CHECKING:
    from distdbg.agent.judging.judged_verdict import JudgedVerdict
    from distdbg.agent.judging.reports import ReportChanges, ReportedRoot


class DiagnosisPhase(Enum):
    """What the diagnosis is at.

    WATCHING -> JUDGING -> WATCHING ...   while the ranks run
    WATCHING -> ABORTING -> OVER          what is proven ends the job, after its stacks are taken;
                                          back to WATCHING when a prompt has opened meanwhile
    any -> LAST -> OVER                   the ranks are over: one verdict more, if it is needed
    """

    WATCHING = auto()
    JUDGING = auto()
    ABORTING = auto()
    LAST = auto()
    OVER = auto()

    @property
    def is_looking(self) -> bool:
        """Whether what the ranks do still matters."""
        return self in (DiagnosisPhase.WATCHING, DiagnosisPhase.JUDGING)


class Peer(NamedTuple):
    """Another host of the job."""

    reported: HostAccountState
    has_reason: bool
    """Whether one of its ranks is a reason to diagnose the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingProof:
    """A proof whose ranks have to be seen once more before it counts."""

    judged: JudgedVerdict
    elsewhere: tuple[int, ...] = ()
    """Those of its ranks that other hosts have to confirm."""
    request: int | None = None
    """By which they do; None: none was sent, only this host's ranks are looked at."""
    until_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisState:
    """What is known, what was said, and what is under way."""

    abort_on: frozenset[str] = frozenset()
    """The kinds of proofs that end the job."""
    phase: DiagnosisPhase = DiagnosisPhase.WATCHING

    # What was seen.
    look: RecordsRead = field(default_factory=lambda: RecordsRead(at_ns=0))
    peers: Mapping[int, Peer] = field(default_factory=dict)
    """By number of the host."""
    ends: tuple[SeenEnd, ...] = ()
    hold: ClockHold = ClockHold.NOBODY

    # What the root was told, on another host.
    request: AccountRequest = field(default_factory=AccountRequest)
    answered: int = 0
    """The number of the last request that was answered."""
    reported: Triggers = ()

    # What was judged.
    seen: Triggers = ()
    """What the last verdict stands on; () makes the job be judged again."""
    judged: JudgedVerdict | None = None
    """The verdict that is true now."""
    judged_ns: int = 0
    version: int = 0
    """Grows with every verdict."""
    aged_ns: int | None = None
    """When the words of the verdict are too old; None: they have no age."""
    next_ns: int = 0
    """Before which the job is not judged again."""
    cost_ns: int = 0
    """What the last judging has cost."""

    # What follows from it.
    proof: PendingProof | None = None
    reports: ReportChanges | None = None
    """None: there was no verdict yet."""
    postponed: ReportedRoot | None = None
    """What would have ended the job, had nobody held its clock."""
    is_loaded: bool = False
    """Whether what judging takes was imported."""
    is_written: bool = False
    """Whether there is a verdict.json."""

    @property
    def triggers(self) -> Triggers:
        """Where the ranks of all hosts stand."""
        return (
            self.look.triggers,
            tuple((p.reported.node, p.reported.made_ns) for p in self.peers.values()),
        )

    @property
    def has_reason(self) -> bool:
        """Whether any rank is a reason to diagnose the job."""
        return bool(self.look.triggers) or any(peer.has_reason for peer in self.peers.values())

    @property
    def is_ended_by_launcher(self) -> bool:
        """Whether its launcher is ending the job, and says why."""
        return any(end.was_asked for end in self.ends)
