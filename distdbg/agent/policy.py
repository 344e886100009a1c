"""Decides which verdicts abort a job: by DISTDBG_ABORT_ON, and by what is proven. Pure.

Proven means that ranks can never go on, whatever the others do: they are deadlocked, or wait in the end for a
rank that is gone. Waits for a rank that computes do not count.

A rank that died is proven to be dead. Most ranks learn of it by themselves, at once: native waits watch
their peers. A rank that still waits a second later, in an op begun before the death, waits in a group, or
for a message, without the dead rank, but other members may need the dead rank. Ranks that have caught the
error and go on, in ops that they began later, are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from distdbg.control.words import AGENT, AbortWords
from distdbg.diagnose.finding import Edge, Finding, FindingKind, Verdict
from distdbg.diagnose.graph import find_deadlocks
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Trait
from distdbg.errors import ConfigError
from distdbg.record.format import Flag
from distdbg.record.rank_state import RankState

KINDS: Final = ("dead", "mismatch", "deadlock")
_KIND_OF: Final = {
    FindingKind.DEADLOCK: "deadlock",
    FindingKind.MISMATCH: "mismatch",
    FindingKind.DEAD_RANK: "dead",
    FindingKind.MISSING_RANK: "dead",  # of one that is gone
}


def read_abort_on(text: str) -> frozenset[str]:
    """The kinds of verdicts that may abort; ConfigError for an unknown one."""
    words = {word.strip().lower() for word in text.split(",")} - {"", "none"}
    unknown = sorted(words.difference(KINDS))
    if unknown:
        raise ConfigError(
            f"the variable DISTDBG_ABORT_ON={text!r} is not valid: unknown kind {unknown[0]!r}",
            hint=f"there are {', '.join(KINDS)}, none",
        )
    return frozenset(words)


def find_blocked(session: Session, waits: dict[int, tuple[Edge, ...]]) -> frozenset[int]:
    """The ranks that can never go on: they wait, in the end, for each other or for one that is gone."""
    gone = {rank for rank, log in session.ranks.items() if log.is_gone}
    # An op that one of its ranks has left raises an error: its waits end.
    lasting = {rank: edges for rank, edges in waits.items() if not any(e.left for e in edges)}
    return frozenset(find_deadlocks(lasting, gone).blocked)


def find_proven_kind(
    session: Session, root: Finding | None, blocked: Collection[int]
) -> str | None:
    """The kind of DISTDBG_ABORT_ON that a finding is, where it is proven; None: it may not abort the job."""
    if root is None:
        return None
    if not blocked:
        return "dead" if _has_unnoticed_death(session, root) else None
    if root.has(Trait.JOINING):
        return None  # whoever has not joined may still be started
    kind = _KIND_OF.get(root.kind)
    if root.kind is FindingKind.DEADLOCK and not root.deadlocked <= set(blocked):
        return None
    if root.kind is FindingKind.MISSING_RANK:
        logs = [session.ranks.get(rank) for rank in root.ranks]
        if not logs or not all(log is not None and log.is_gone for log in logs):
            return None
    return kind


def _has_unnoticed_death(session: Session, root: Finding) -> bool:
    """Whether ranks are in ops that they began before a rank died, of which they have not noticed."""
    if root.kind is not FindingKind.DEAD_RANK or root.at_ns is None:
        return False
    if not all(rank in session.ranks and session.ranks[rank].is_gone for rank in root.ranks):
        return False
    for rank, log in session.ranks.items():
        if log.activity is None or log.activity.state is not RankState.WAITING:
            continue
        ops = log.ops
        awaited = {wait.number for wait in log.work_waits}
        for at in ops.in_flight():
            is_in = not ops.flags[at] & Flag.ASYNC or ops.number[at] in awaited
            if is_in and session.time_ns(rank, ops.issued_ns[at]) < root.at_ns:
                return True
    return False


def to_abort_words(verdict: Verdict, lines: Sequence[str]) -> AbortWords:
    """What every rank raises on abort; `lines` as the agent prints them."""
    root = verdict.root
    hint = root.advice if root is not None else ""
    details = [
        line.strip() for line in (lines[1:-1] if hint else lines[1:])
    ]  # the last is the hint
    return AbortWords(
        what=lines[0] if lines else verdict.what,
        type=str(root.kind) if root is not None else "deadlock",
        ranks=list(root.ranks) if root is not None else (),
        details=details,
        hint=hint,
        by=AGENT,
    )
