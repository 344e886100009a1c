"""Hangs and mismatches whose cause is that a rank had fewer batches than others: that leads the finding.

Proven by the marks of the loops (`record.batches`), for the group of the finding or any that its ranks share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.ops import NONE
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import fit, known_ns, say_ranks
from distdbg.record.batches import UNKNOWN, RanOut, find_ran_out, hint_for, to_said
from distdbg.record.entries import MarkEntry
from distdbg.record.format import NO_COLLECTIVE
from distdbg.record.known_marks import JOIN_OUT_OF_BATCHES, OUT_OF_BATCHES
from distdbg.record.passages import LoopTrack

_KINDS: Final = frozenset(
    (
        FindingKind.MISSING_RANK,
        FindingKind.MISMATCH,
        FindingKind.DEADLOCK,
        FindingKind.STALL,
        FindingKind.STUCK_RANK,
    )
)
_ENDS: Final = (OUT_OF_BATCHES, JOIN_OUT_OF_BATCHES)


def tell_out_of_batches(finding: Finding, session: Session) -> Finding:
    """The finding, led by who ran out of batches, where that explains it."""
    if finding.kind not in _KINDS:
        return finding
    involved = sorted({*finding.ranks, *finding.victims} & session.ranks.keys())
    if not any(_has_ended(session.ranks[rank]) for rank in involved):
        return finding
    for group in _groups(session, finding, involved):
        members = set(session.members(group))
        tracks = {rank: _track(session.ranks[rank], group) for rank in involved if rank in members}
        found = find_ran_out(tracks)
        if found is not None:
            return _led(finding, session, found, hint_for(session.groups[group].backend))
    return finding


def _led(finding: Finding, session: Session, found: RanOut, hint: str) -> Finding:
    return replace(
        finding,
        what=fit(found.head, found.rest),
        ranks=found.ranks,
        victims=tuple(
            rank for rank in sorted({*finding.ranks, *finding.victims}) if rank not in found.ranks
        ),
        evidence=(
            *(
                Evidence(
                    text=f"rank {rank} had {found.count} batches; {say_ranks(found.others)} began one more",
                    rank=rank,
                    at_ns=known_ns(session.time_ns(rank, at_ns)),
                )
                for rank, at_ns in found.at_ns.items()
            ),
            Evidence(text=finding.what),
            *(
                one
                for one in finding.evidence
                # What the error said of it already, and that nothing shows which call was skipped.
                if not one.text.startswith(found.head) and UNKNOWN not in one.text
            ),
        ),
        advice=hint,
    )


def _has_ended(log: RankLog) -> bool:
    return any(isinstance(note, MarkEntry) and note.name in _ENDS for note in log.notes)


def _groups(session: Session, finding: Finding, ranks: Sequence[int]) -> Iterable[int]:
    """The group of the finding first, then others that two of the ranks are in."""
    shared = [
        index
        for index in range(len(session.groups))
        if sum(index in session.ranks[rank].progress for rank in ranks) > 1
    ]
    return sorted(shared, key=lambda index: session.groups[index].label != finding.group)


def _track(log: RankLog, group: int) -> LoopTrack:
    ops = log.ops
    calls = [
        (ops.issued_ns[at], ops.seq[at])
        for at, its in enumerate(ops.group)
        if its == group and its != NONE and not ops.flags[at] & NO_COLLECTIVE
    ]
    calls.sort()
    return LoopTrack(to_said(log.notes), [seq for _, seq in calls], [at_ns for at_ns, _ in calls])
