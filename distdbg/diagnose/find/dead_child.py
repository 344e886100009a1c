"""Ranks that others wait for, asleep, with a child process that has crashed: that leads the finding. Pure.

Workers of data loaders die alone: whoever waits for their batches in a queue, or at a pipe, waits for ever.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, Kind
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import fit
from distdbg.record.sightings import dead_child_in

_KINDS: Final = frozenset((Kind.STUCK_RANK, Kind.STALL, Kind.MISSING_RANK))
#: Nobody ends a worker so on purpose; SIGTERM, or an exit code, may be meant.
_CRASHED: Final = re.compile(
    r"was killed by (SIGSEGV|SIGBUS|SIGABRT|SIGILL|SIGFPE|SIGKILL|SIGSYS)$"
)
_HINT: Final = (
    "see why that process died (stderr may have its stack; of SIGKILL, the kernel's log): "
    "what it had to make is lost"
)


def tell_dead_child(finding: Finding, session: Session) -> Finding:
    """The finding, led by the process that a rank of it has lost."""
    if finding.kind not in _KINDS:
        return finding
    for rank in finding.ranks:
        log = session.ranks.get(rank)
        child = "" if log is None or log.activity is None else dead_child_in(log.activity.why)
        if _CRASHED.search(child):
            wait, then, end = finding.what.partition("; then ")
            return replace(
                finding,
                what=fit(f"rank {rank}'s child process {child}", f"; {wait}", then + end),
                evidence=(Evidence(text=finding.what), *finding.evidence),
                advice=_HINT,
            )
    return finding
