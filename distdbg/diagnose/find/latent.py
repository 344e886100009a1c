"""Latent errors found while the job ran: leaked work, leaked groups, arrays in two ops at once.

Each rank records once what a line of the program did, and at its end how often. Records of several ranks
about one line are one finding. Of a running job the agent adds the message races that it has found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from distdbg.diagnose.find.phrases import as_evidence, few
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RecordedProblem, Session
from distdbg.diagnose.wording import say_ranks

KINDS: Final = {
    "LeakedWork": FindingKind.LEAKED_WORK,
    "LeakedGroup": FindingKind.LEAKED_GROUP,
    "BufferRace": FindingKind.BUFFER_RACE,
    "MessageRace": FindingKind.MESSAGE_RACE,
}
_MAX_FINDINGS: Final = 16

_Key = tuple[str, str, str, str]


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """What each line did, with the ranks that it did it on."""
    reported: dict[_Key, dict[int, RecordedProblem]] = defaultdict(dict)
    for rank, log in session.ranks.items():
        for found in log.found:
            if found.type in KINDS:
                reported[found.type, found.kind, found.group, _site(found)][rank] = found
    findings = sorted(
        (_say(session, site, mine) for (_, _, _, site), mine in reported.items()),
        key=lambda finding: finding.at_ns or 0,
    )
    return findings[:_MAX_FINDINGS]


def reported_sites(session: Session) -> frozenset[tuple[int, str]]:
    """Ranks and lines whose leaked work the rank has told itself."""
    return frozenset(
        (rank, _site(found))
        for rank, log in session.ranks.items()
        for found in log.found
        if found.type == "LeakedWork"
    )


def _site(found: RecordedProblem) -> str:
    return as_evidence(found.details[0]).site if found.details else ""


def _say(session: Session, site: str, reported: Mapping[int, RecordedProblem]) -> Finding:
    ranks = tuple(sorted(reported))
    first = reported[ranks[0]]
    kind = KINDS[first.type]
    times = {rank: _times(found) for rank, found in reported.items()}
    at_ns = min(session.time_ns(rank, found.at_ns) for rank, found in reported.items())
    what = _what(kind, first, site, say_ranks(ranks), max(times.values()))
    return Finding(
        kind=kind,
        severity=Severity.WARNING,
        what=what,
        ranks=ranks,
        group=first.group if kind is not FindingKind.LEAKED_GROUP else "",
        at_ns=None if at_ns == NEVER else at_ns,
        evidence=few(_evidence([reported[rank] for rank in ranks])),
        advice=first.hint,
        numbers={"times": float(max(times.values())), "ranks": float(len(ranks))},
    )


def _what(kind: FindingKind, found: RecordedProblem, site: str, ranks: str, times: int) -> str:
    at = f" at {site}" if site else ""
    often = f", {times} times" if times > 1 else ""
    if kind is FindingKind.LEAKED_WORK:
        return f"{ranks} never waited for {found.kind} on group '{found.group}'{at}{often}"
    if kind is FindingKind.LEAKED_GROUP:
        return f"{ranks} made a group{at}{often}, and never destroyed it"
    if kind is FindingKind.MESSAGE_RACE:
        return found.what
    return f"{ranks}: {found.what}{at}{often}"


def _evidence(reported: Sequence[RecordedProblem]) -> list[Evidence]:
    return [as_evidence(line) for found in reported for line in found.details]


def _times(found: RecordedProblem) -> int:
    count, _, _ = found.how.partition(" ")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 1
