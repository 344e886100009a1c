"""Ranks that others wait for, asleep, with a child process that has crashed: that leads the finding. Pure.

Workers of data loaders die alone: whoever waits for their batches in a queue, or at a pipe, waits for ever.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.traits import FactKind
from distdbg.diagnose.wording import fit, say_site
from distdbg.record.libraries import is_library
from distdbg.record.observations import crashed_child_in
from distdbg.record.printed_stack import own_frame

_KINDS: Final = frozenset((FindingKind.STUCK_RANK, FindingKind.STALL, FindingKind.MISSING_RANK))
_LOST: Final = "what that process had to make is lost, and the rank waits for it"
_HINT: Final = f"see why it died (stderr may have its stack; of SIGKILL, the kernel's log): {_LOST}"
#: Frames of the stack of a process that crashed.
_MAX_FRAMES: Final = 3


def tell_dead_child(finding: Finding, session: Session) -> Finding:
    """The finding, led by the process that a rank of it has lost."""
    if finding.kind not in _KINDS:
        return finding
    for rank in finding.ranks:
        log = session.ranks.get(rank)
        child = "" if log is None or log.activity is None else crashed_child_in(log.activity.why)
        if child:
            wait, then, end = finding.what.partition("; then ")
            frame = own_frame(log.child_stack) if log is not None else None
            at = f" at {say_site(frame)}" if frame is not None else ""
            head = f"rank {rank}'s child process {child}{at}"
            is_over = not session.is_live or session.cut is not None
            return replace(
                finding,
                # What it waits for will not come: of a job that is over no age is asked for.
                kind=FindingKind.STUCK_RANK if is_over else finding.kind,
                severity=Severity.ERROR if is_over else finding.severity,
                what=fit(head, f"; {wait}", then + end),
                evidence=(Evidence(text=finding.what), *_stack(rank, log), *finding.evidence),
                advice=f"look at{at.removeprefix(' at')}: {_LOST}" if at else _HINT,
            )
    return finding


def _stack(rank: int, log: RankLog | None) -> list[Evidence]:
    frames = [f for f in (log.child_stack if log is not None else ()) if not is_library(f.file)]
    calls = ", called from ".join(say_site(frame) for frame in frames[:_MAX_FRAMES])
    reason = f"its child process crashed at {calls}"
    text = f"rank {rank}: {reason}"
    fact = Evidence(text=text, rank=rank, kind=FactKind.REASON, detail=reason)
    return [fact] if calls else []
