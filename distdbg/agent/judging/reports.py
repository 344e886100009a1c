"""Decides which verdicts are reported, and when: each once. Pure.

    deadlock                                     at once: it is proven
    dead rank, missing rank that is gone,
    mismatch                                     when others still wait a moment later: most ranks notice
                                                 it by themselves, and raise
    stuck rank                                   when others wait for it (`record.thresholds` say since when)
    stall                                        after half a minute, as information; not of a rank that will
                                                 count as stuck
    anything else                                never; it is in verdict.json

A stuck rank that goes on gets one line more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from distdbg.diagnose import headline
from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.errors import format_ranks
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import limit_ns

_S: Final = 1_000_000_000
#: How long ranks may take to raise by themselves.
GRACE_NS: Final = 400_000_000
#: How long a rank that was stuck has moved when that is reported.
CALM_NS: Final = 1_000_000_000
#: How long those who wait for others than the dead one may.
LONG_GRACE_NS: Final = _S
#: Until those that wait for a stuck rank are all seen to wait.
SETTLE_NS: Final = 250_000_000
STALL_NS: Final = limit_ns(None)
#: Reports of one kind: somebody who stops and continues a rank again and again need not read of it each time.
#: What is proven counts by itself: it may have to end the job.
_MAX_SAID: Final = 20
_WHEN_LEFT_ALONE: Final = (FindingKind.DEAD_RANK, FindingKind.MISSING_RANK, FindingKind.MISMATCH)

_Key = tuple[FindingKind, tuple[int, ...], str, int, str | None]


@dataclass(frozen=True, slots=True)
class ReportedRoot:
    """The root of a verdict, as far as it matters for what is said."""

    finding: Finding
    proven_kind: str | None = None
    """The kind of `DISTDBG_ABORT_ON` that it is, when it is proven."""
    has_blocked: bool = True
    """Whether ranks wait that can never go on."""
    state: RankState | None = None
    """The state of a rank that others wait for."""

    @property
    def key(self) -> _Key:
        found = self.finding
        return found.kind, found.ranks, found.group, found.seq, self.proven_kind

    @property
    def is_cause(self) -> bool:
        """Whether what comes later is more likely its consequence than another cause."""
        return self.proven_kind is not None or self.finding.kind is FindingKind.STUCK_RANK


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportChanges:
    """What was said, and what is about to be; what changes it returns another one."""

    case: ReportedRoot | None = None
    """The one that is true now."""
    since_ns: int = 0
    """Since when it is."""
    _said: frozenset[_Key] = frozenset()
    _stuck: Mapping[_Key, ReportedRoot] = field(default_factory=dict)
    _freed_ns: Mapping[_Key, int] = field(default_factory=dict)
    """Since when those of them move."""
    _counts: Mapping[str | None, int] = field(default_factory=dict)

    def take(self, case: ReportedRoot | None, now_ns: int) -> ReportChanges:
        """The job was judged anew; None: there is nothing to say of it."""
        is_same = case is not None and self.case is not None and case.key == self.case.key
        return replace(self, case=case, since_ns=self.since_ns if is_same else now_ns)

    def due(self, now_ns: int) -> ReportedRoot | None:
        """The case when it is to be said now, for the first time."""
        case = self.case
        if (
            case is None
            or case.key in self._said
            or self._counts.get(case.proven_kind, 0) >= _MAX_SAID
        ):
            return None
        patience_ns = _patience_ns(case)
        if patience_ns is None or now_ns - self.since_ns < patience_ns:
            return None
        return case

    def said(self, case: ReportedRoot) -> ReportChanges:
        is_stuck = case.finding.kind is FindingKind.STUCK_RANK
        return replace(
            self,
            _said=self._said | {case.key},
            _counts={**self._counts, case.proven_kind: self._counts.get(case.proven_kind, 0) + 1},
            _stuck={**self._stuck, case.key: case} if is_stuck else self._stuck,
        )

    def again(self, case: ReportedRoot) -> ReportChanges:
        """What it asks for was put off: it is said once more, if the job is found so again."""
        return replace(self, _said=self._said - {case.key}, case=None)

    @staticmethod
    def abort_line(finding: Finding) -> str:
        """Why the ranks of a job end now: 'DEADLOCK on ranks 0-2: the job is aborted'."""
        # Of a mismatch there may be no side that is to blame.
        ranks = format_ranks(finding.ranks or finding.victims)
        word = headline.of_kind(finding.kind.value, finding.what)
        where = f" on rank{'' if ranks.isdecimal() else 's'} {ranks}" if ranks else ""
        return f"{word}{where}: the job is aborted"

    @property
    def has_stuck(self) -> bool:
        """Whether a stuck rank was named that may go on."""
        return bool(self._stuck)

    def taken_back(
        self, states: Mapping[int, RankState], now_ns: int
    ) -> tuple[ReportChanges, list[str]]:
        """One line for each stuck rank that was named and goes on, by what the ranks do now.

        A moment later: a rank that a signal ends moves as well before it is over.
        """
        if not self._stuck:
            return self, []
        lines = []
        said, stuck, freed_ns = set(self._said), dict(self._stuck), dict(self._freed_ns)
        for key, case in self._stuck.items():
            now = [states.get(rank) for rank in case.finding.ranks]
            if any(state is not None and state.is_stuck for state in now):
                freed_ns.pop(key, None)
                continue
            said.discard(key)
            is_alive = all(state is not None and not state.is_over for state in now)
            if is_alive and now_ns - freed_ns.setdefault(key, now_ns) < CALM_NS:
                continue
            del stuck[key]
            freed_ns.pop(key, None)
            if is_alive:
                ranks = format_ranks(case.finding.ranks)
                was = f"no longer {case.state}" if case.state is not None else "not stuck any more"
                who = f"rank {ranks} goes" if ranks.isdecimal() else f"ranks {ranks} go"
                lines.append(f"{who} on: {was}")
        return replace(self, _said=frozenset(said), _stuck=stuck, _freed_ns=freed_ns), lines


def _patience_ns(case: ReportedRoot) -> int | None:
    kind = case.finding.kind
    if kind is FindingKind.DEADLOCK:
        return 0 if case.proven_kind is not None else None
    if kind in _WHEN_LEFT_ALONE and case.proven_kind is not None:
        return GRACE_NS if case.has_blocked else LONG_GRACE_NS
    if kind is FindingKind.STUCK_RANK and case.finding.victims:
        return SETTLE_NS
    if kind is FindingKind.STALL and case.state is not None and case.state.is_stuck:
        return None  # it counts as stuck when it is as old as that state may be
    if kind in (FindingKind.STALL, FindingKind.MISSING_RANK):
        return STALL_NS
    return None
