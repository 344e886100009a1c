"""Ranks that others wait for and that have lost a thread: that leads the finding.

A thread that raises ends alone, and the program does not notice: whoever waits for what it made waits for
ever.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.session import RecordedProblem, Session
from distdbg.diagnose.traits import FactKind
from distdbg.diagnose.wording import fit, known_ns, short_site
from distdbg.record.known_marks import THREAD_ERROR

_KINDS: Final = frozenset((FindingKind.STUCK_RANK, FindingKind.STALL, FindingKind.MISSING_RANK))
_HINT: Final = (
    "see why that thread raised: this rank waits for what the thread should have made or done"
)
#: A thread that has raised so long before the rank's last op is not what it waits for.
_LONG_NS: Final = 600 * 10**9


def tell_thread_error(finding: Finding, session: Session) -> Finding:
    """The finding, led by the thread that a rank of it has lost."""
    if finding.kind not in _KINDS:
        return finding
    for rank in finding.ranks:
        found = _last(session, rank)
        if found is not None:
            return _led(finding, session, rank, found)
    return finding


def _last(session: Session, rank: int) -> RecordedProblem | None:
    log = session.ranks.get(rank)
    if log is None:
        return None
    ends = log.ops.ended_ns
    since_ns = (max(ends[-64:]) if len(ends) else 0) - _LONG_NS
    errors = [one for one in log.found if one.type == THREAD_ERROR and one.at_ns >= since_ns]
    return errors[-1] if errors else None


def _led(finding: Finding, session: Session, rank: int, found: RecordedProblem) -> Finding:
    site = short_site(found.details[0]) if found.details else ""
    at_ns = session.time_ns(rank, found.at_ns)
    reason = f"its {found.what}{f' at {site}' if site else ''}"
    fact = Evidence(
        text=f"rank {rank}: {reason}",
        rank=rank,
        at_ns=known_ns(at_ns),
        kind=FactKind.REASON,
        detail=reason,
    )
    return replace(
        finding,
        what=fit(f"rank {rank}'s {found.what}", f" at {site}" if site else ""),
        evidence=(Evidence(text=finding.what), fact, *finding.evidence),
        advice=_HINT,
    )
