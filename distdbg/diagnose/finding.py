"""Findings, and the verdict, which puts the cause before its consequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.traits import NO_TRAITS, FactKind, Trait, traits_of


class FindingKind(StrEnum):
    """What was found. The values are words of messages, JSON and metrics."""

    DEAD_RANK = "dead rank"
    MISMATCH = "mismatch"
    DEADLOCK = "deadlock"
    MISSING_RANK = (
        "missing rank"  # others wait for an op that it never called, has left, or is behind
    )
    STUCK_RANK = "stuck rank"  # alive, and for longer in a state than `thresholds` allows
    STALL = "stall"  # others wait for a rank that may still come: no fault, a name
    FAILED_OP = "failed op"  # an op raised (timeout, network, store) and nothing above explains it
    STOPPED = "stopped"  # a person ended or stopped the job
    STRAGGLER = "straggler"
    SLOW_LINK = "slow link"
    SLOW_HOST = "slow host"
    ORDER_INVERSION = "order inversion"
    LEAKED_WORK = "leaked work"
    LEAKED_GROUP = "leaked group"
    BUFFER_RACE = "buffer race"  # an array in two ops at once, or changed while an op had it
    MESSAGE_RACE = "message race"  # a receive that could as well have got another message
    DIVERGED = "diverged replicas"
    NAN_SOURCE = "NaN source"
    SUSPICION = "suspicion"  # what the check noticed and did not forbid
    RECORDING_LOST = "recording lost"
    UNKNOWN = "unknown"  # of a later version, whose JSON was read; no finder makes one


#: Those that a diagnosis finds.
FINDING_KINDS: Final = tuple(kind for kind in FindingKind if kind is not FindingKind.UNKNOWN)


class Severity(StrEnum):
    """How bad it is; the order is that of the members."""

    ERROR = "error"  # the job has failed or cannot go on
    WARNING = "warning"  # it goes on, slower than it could, wrongly, or until it does not
    NOTE = "note"  # worth knowing; no exit code of its own


class Role(StrEnum):
    """What a rank has to do with the verdict."""

    ROOT = "root"
    VICTIM = "victim"
    BYSTANDER = "bystander"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One fact, in words, with where it comes from."""

    text: str
    """A clause that stands alone: 'rank 3 called all_gather #7 on group 'dp' at train.py:88 (step)'."""
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    """All that it is true of, where that is more than `rank`."""
    op: OpRef | None = None
    site: str = ""
    """'train.py:88 (step)'; the whole path is in the op's stack."""
    at_ns: int | None = None
    """On the session's clock."""
    source: str = ""
    """File and line of a log that says so."""
    kind: FactKind | None = None
    detail: str = ""
    """The part of it that is worth being said where the rest is known."""
    is_left_out: bool = False
    """Whether `rank` left out a call like `op` at its place: then it matters what skips it there."""
    is_for_others: bool = False
    """Whether the first of `ranks` made calls like `op`, its own, there, and none for the second one."""
    is_extra: bool = False
    """Whether `rank` alone made the call `op`: then it matters what brought it there."""

    @property
    def all_ranks(self) -> tuple[int, ...]:
        """The ranks that it is true of."""
        return self.ranks or (() if self.rank is None else (self.rank,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`rank` waits in `op` for `on`; edges of a deadlock, also what a wait-for graph is drawn from."""

    rank: int
    on: tuple[int, ...]
    is_any: bool = False
    """Whether one of `on` would be enough."""
    op: OpRef | None = None
    text: str = ""
    """'recv from rank 1 (tag 5) on group 'world''."""
    site: str = ""
    since_ns: int | None = None
    left: tuple[int, ...] = ()
    """Those of `on` that have destroyed the group of the op: it ends with an error, and they never come."""


#: Whom blocked ranks wait for: by rank one edge per blocked thread.
Waits = Mapping[int, tuple[Edge, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    kind: FindingKind
    severity: Severity
    what: str
    """The first line: enough at 3 a.m., at most 120 characters where that can be had."""
    ranks: tuple[int, ...] = ()
    """Those to blame; () when nobody can be blamed."""
    victims: tuple[int, ...] = ()
    """Those that suffer from it and did nothing wrong."""
    group: str = ""
    """Label of the group; '' when it is not about one."""
    seq: int = 0
    at_ns: int | None = None
    """Since when, on the session's clock."""
    evidence: tuple[Evidence, ...] = ()
    edges: tuple[Edge, ...] = ()
    advice: str = ""
    """One action."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What can be measured of it, by name with its unit: {'late_s': 1.2, 'times': 40}."""
    traits: frozenset[Trait] = NO_TRAITS
    """What else is known of it; its advice has some as well: `has` knows of both."""
    follows: tuple[Finding, ...] = ()
    """What would not be there without it: ranks that timed out because of it."""

    @property
    def all_traits(self) -> frozenset[Trait]:
        """Its own, and those of its advice."""
        return self.traits | traits_of(self.advice)

    def has(self, trait: Trait) -> bool:
        return trait in self.all_traits

    @property
    def deadlocked(self) -> frozenset[int]:
        """The ranks of a deadlock that wait for each other: not all of them need to be a cause."""
        return frozenset(edge.rank for edge in self.edges) or frozenset(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What explains the rest, and all that was found."""

    what: str
    """The first line: that of the root cause, or why there is none."""
    root: Finding | None
    """One of `findings`."""
    findings: tuple[Finding, ...]
    """Root cause first, then by severity and time; what follows from one is in its `follows`."""
    roles: Mapping[int, Role]
    lacks: tuple[str, ...] = ()
    """What evidence is missing for a surer or better verdict."""

    def __post_init__(self) -> None:
        if self.root is not None and all(one is not self.root for one in self.findings):
            raise ValueError("the root of a verdict is one of its findings")

    @property
    def has_faults(self) -> bool:
        """Whether something is found that is more than a note: the exit code 1."""
        return any(finding.severity is not Severity.NOTE for finding in self.findings)

    @property
    def is_root_a_fault(self) -> bool:
        """Whether something is wrong now: else ranks wait for one that is busy, if at all."""
        return self.root is not None and self.root.severity is not Severity.NOTE
