"""Ranks that made the op at fault, or slept, while they handled an error: that error comes first. Pure.

    rank 2 was handling ValueError: no number at load.py:52 (parse) when it called barrier #15
    rank 5 was handling FileNotFoundError: 'shard-12.npy' at storage.py:24 (read) when it was interrupted

A `finally`, an `__exit__` or an `except` makes the op on the rank alone that has failed, and what the op
raises hides why. A retry that sleeps hides the error for as long as it goes on.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.last_op import last_op
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Trait
from distdbg.diagnose.wording import MAX_LINE
from distdbg.record.printable import shorten_middle

_KINDS: Final = frozenset(
    (
        FindingKind.DEADLOCK,
        FindingKind.DEAD_RANK,
        FindingKind.FAILED_OP,
        FindingKind.MISMATCH,
        FindingKind.MISSING_RANK,
        FindingKind.STUCK_RANK,
    )
)
_HINT: Final = (
    "mend that error first; what runs because of it (`finally`, `__exit__`, `except`) must not "
    "make an op"
)
_RETRIES: Final = (
    "see why that error comes again: the rank sleeps where it handles it, as a retry "
    "without an end does"
)
_INTERRUPTED: Final = "KeyboardInterrupt"


def tell_handled(finding: Finding, session: Session) -> Finding:
    """The finding, led by the error that a rank of its cause was handling."""
    if finding.kind not in _KINDS:
        return finding
    for rank in finding.ranks:
        log = session.ranks.get(rank)
        if log is not None and log.exit_handled:
            return _led(finding, session, rank, log.exit_handled)
    return finding


def _led(finding: Finding, session: Session, rank: int, handled: str) -> Finding:
    if session.ranks[rank].exit_type == _INTERRUPTED:
        return _interrupted(finding, rank, handled)
    called = last_op(session, rank)
    if finding.kind is FindingKind.DEAD_RANK or called is None or called.op is None:
        fact = Evidence(text=f"rank {rank} was handling {handled}", rank=rank)
        return replace(finding, evidence=(fact, *finding.evidence))
    tail = f" when it called {session.kind_of(called.op)}"
    head = f"rank {rank} was handling "
    brief = re.sub(r" \([^()]*\)$", "", handled)  # the function
    what = head + shorten_middle(brief, MAX_LINE - len(head) - len(tail)) + tail
    facts = [Evidence(text=finding.what), *finding.evidence]
    if brief not in what:
        facts.insert(0, Evidence(text=head + handled, rank=rank))
    return replace(finding, what=what, evidence=tuple(facts), advice=_HINT)


def _interrupted(finding: Finding, rank: int, handled: str) -> Finding:
    """Return where a rank was that a person interrupted while it handled an error."""
    text = f"rank {rank} was handling {handled} when it was interrupted"
    sleeps = finding.has(Trait.ASLEEP)
    return replace(
        finding,
        evidence=(Evidence(text=text, rank=rank), *finding.evidence),
        advice=_RETRIES if sleeps else finding.advice,
    )
