"""Notes about what the records lack, where that leaves a question open.

A ring that wrapped around is normal: it is a note only where a rank is stuck in an op that a peer's ring
has overwritten. Names and call sites that did not fit, ranks without a record, damage, and clocks that
were not compared are reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import IN_FLIGHT, NONE
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks
from distdbg.record.ends import RankEnd
from distdbg.record.format import NO_COLLECTIVE

#: Keys of `RankLog.lost`: what is not there, and what would have kept it.
_WORDS: Final = {
    "strings": ("names and messages that did not fit", "raise the size of the record"),
    "sites": ("call sites that did not fit", "raise the size of the record"),
    "parked": ("ops in flight that the ring has overwritten", "raise the size of the ring"),
    "counters": (
        "ops without a counter: too many groups, kinds and dtypes at the same time",
        "destroy groups that are no longer used",
    ),
    "gaps": ("events that could not be read", "look for a full disk or a damaged file"),
}
_MAX_LACKS: Final = 8


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """What is missing, one note for each kind."""
    return [
        *_missing_ranks(session),
        *_lost_words(session),
        *_overwritten(session, matched),
        *_unknown_clocks(session),
    ]


def _missing_ranks(session: Session) -> list[Finding]:
    ended_well = [
        rank for rank in session.ranks_without_record() if not _has_failed(session.ranks[rank].end)
    ]
    missing = tuple(sorted((*session.missing_ranks(), *ended_well)))
    if not missing or not session.ranks or session.went_well_unused():
        return []
    of_all = f" of {session.world_size}" if session.world_size else ""
    # Nothing good can be said of ranks of which nothing was seen.
    is_blind = set(missing) >= set(session.ranks)
    what = f"{say_ranks(missing)}{of_all} left no record that could be read"
    if is_blind:
        what = f"no record of {say_ranks(missing)} could be read: only their ends are known"
    note = _note(
        what,
        missing,
        [Evidence(text=line) for line in session.lacks[:_MAX_LACKS]],
        "look whether they were started, and whether their files are in the run folder",
    )
    return [replace(note, severity=Severity.WARNING) if is_blind else note]


def _has_failed(end: RankEnd | None) -> bool:
    return end is not None and end.is_failure


def _lost_words(session: Session) -> list[Finding]:
    ranks: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, log in session.ranks.items():
        for key, count in log.lost.items():
            if count and key != "ops":
                ranks[key][rank] = count
    found = []
    for key, counts in ranks.items():
        words, advice = _WORDS.get(key, (f"'{key}' that are not there", ""))
        found.append(
            _note(
                f"{say_ranks(counts)} lost {sum(counts.values())} {words}",
                tuple(sorted(counts)),
                [],
                advice,
                float(sum(counts.values())),
            )
        )
    return found


def _overwritten(session: Session, matched: Matched) -> list[Finding]:
    """Somebody is in an op that a peer has passed and whose ring has it no more."""
    gone: dict[int, set[int]] = defaultdict(set)
    for log in session.ranks.values():
        if IN_FLIGHT not in log.ops.status:
            continue
        for at in log.ops.in_flight():
            group, seq = log.ops.group[at], log.ops.seq[at]
            if group == NONE or log.ops.flags[at] & NO_COLLECTIVE:
                continue
            if group not in gone:
                gone[group] = {seq}
            else:
                gone[group].add(seq)
    found = []
    for group, seqs in gone.items():
        first = min(seqs)
        ranks = tuple(
            sorted(
                rank
                for rank, ops in matched.of(group).by_rank.items()
                if rank in session.ranks
                and session.ranks[rank].lost.get("ops")
                and ops.first_seq > first
            )
        )
        if ranks:
            label = session.groups[group].label
            found.append(
                _note(
                    f"{say_ranks(ranks)} went on so far that op #{first} on group '{label}' was overwritten",
                    ranks,
                    [],
                    "raise the size of the ring to see what they called there",
                )
            )
    return found


def _unknown_clocks(session: Session) -> list[Finding]:
    hosts = {log.host for log in session.ranks.values()}
    if len(hosts) < 2:
        return []
    unknown = tuple(
        sorted(rank for rank, log in session.ranks.items() if log.clock_error_ns is None)
    )
    # The first host is the clock of the session, and has no error to be estimated.
    if {session.ranks[rank].host for rank in unknown} <= {_first_host(session)}:
        return []
    return [
        _note(
            f"the clocks of {len(hosts)} hosts were not compared: times of {say_ranks(unknown)} may be off",
            unknown,
            [],
            "run an agent on each host; agents compare the clocks",
        )
    ]


def _first_host(session: Session) -> str:
    return session.ranks[min(session.ranks)].host


def _note(
    what: str,
    ranks: Sequence[int],
    evidence: Sequence[Evidence],
    advice: str,
    count: float = 0.0,
) -> Finding:
    return Finding(
        kind=FindingKind.RECORDING_LOST,
        severity=Severity.NOTE,
        what=what,
        ranks=tuple(ranks),
        evidence=tuple(evidence),
        advice=advice,
        numbers={"lost": count} if count else {},
    )
