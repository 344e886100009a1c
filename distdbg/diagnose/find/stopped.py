"""Jobs that were stopped from outside: an abort, `quit` in the debugger, Ctrl-C, SIGTERM from a scheduler, a
launcher that was asked to stop.

That is how it ended, not why: what ranks hung in at that moment comes before it (`verdict`).
"""

from __future__ import annotations

from distdbg.diagnose.endings import endings_of
from distdbg.diagnose.failures import failures_of
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.session import Session
from distdbg.diagnose.stops import ABORTED, is_by_hand, stop_of
from distdbg.diagnose.wording import fit, known_ns


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    failures = failures_of(session)
    endings = endings_of(session, failures)
    stop = stop_of(session, failures, endings)
    if stop is None:
        return []
    errors = [e for one in failures.values() for e in one if is_by_hand(e)]
    evidence = [
        Evidence(
            text=f"rank {e.rank}: {e.what or ABORTED}",
            rank=e.rank,
            op=e.op,
            at_ns=known_ns(e.at_ns),
        )
        for e in errors[:4]
    ]
    for rank in stop.ranks[:4] if not errors else ():
        one = endings[rank]
        how = one.end.how if one.end is not None and not one.reason else one.how
        evidence.append(Evidence(text=f"rank {rank} {how}", rank=rank, at_ns=known_ns(one.at_ns)))
    advice = "nothing to fix: somebody stopped it on purpose"
    if not errors and session.stopped_by:
        advice = ""
    elif not errors:
        advice = (
            "if nobody stopped it, ask the scheduler: a time limit or a pre-emption ends jobs so"
        )
    return [
        Finding(
            kind=FindingKind.STOPPED,
            severity=Severity.ERROR,
            what=fit(stop.words),
            victims=stop.ranks,
            at_ns=known_ns(stop.at_ns),
            evidence=tuple(evidence),
            advice=advice,
        )
    ]
