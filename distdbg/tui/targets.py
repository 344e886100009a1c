"""Targets: what the cursor can select and Enter opens. Views need not know each other's pages."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.diagnose.finding import FindingKind
from distdbg.view.snapshot import OpKey


@dataclass(frozen=True, slots=True)
class RankTarget:
    rank: int


@dataclass(frozen=True, slots=True)
class RanksTarget:
    """Some ranks that have something in common."""

    ranks: tuple[int, ...]
    what: str = ""
    """What that is, for people."""


@dataclass(frozen=True, slots=True)
class HostTarget:
    host: str


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """One group, by the name that is equal on all members."""

    name: str


@dataclass(frozen=True, slots=True)
class KindTarget:
    """All ops of one kind on one group: a row of the ops view."""

    group: str
    kind: str


@dataclass(frozen=True, slots=True)
class OpTarget:
    key: OpKey
    name: str = ""
    """What it is called, until the feed has said so."""


@dataclass(frozen=True, slots=True)
class FindingTarget:
    """One finding of the verdict: its place, and by what it is known again when others come."""

    path: tuple[int, ...]
    """Index into the findings, then into what follows from that one."""
    kind: FindingKind
    group: str
    seq: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextTarget:
    """A text that is too long for its line."""

    title: str
    text: str
    ranks: tuple[int, ...] = ()


Target = (
    RankTarget
    | RanksTarget
    | HostTarget
    | GroupTarget
    | KindTarget
    | OpTarget
    | FindingTarget
    | TextTarget
)


def of_ranks(ranks: tuple[int, ...], what: str = "") -> RankTarget | RanksTarget | None:
    """One rank by itself, several as a list; None for none."""
    if not ranks:
        return None
    return RankTarget(ranks[0]) if len(ranks) == 1 else RanksTarget(ranks, what)


def rank_of(target: object) -> int | None:
    if isinstance(target, RankTarget):
        return target.rank
    if isinstance(target, TextTarget) and len(target.ranks) == 1:
        return target.ranks[0]
    return None
