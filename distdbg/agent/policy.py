"""What may end a job: DISTDBG_ABORT_ON, and what is proven. Pure.

Proven means that ranks wait which can never go on, whatever the others do: because they wait for each
other, or in the end for somebody who is gone. Who waits for a rank that computes is left alone, and so are
ranks that have caught an error and go on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from distdbg.control.words import AGENT, AbortWords
from distdbg.diagnose.finding import Edge, Finding, Kind, Verdict
from distdbg.diagnose.graph import find_knots
from distdbg.diagnose.session import Session
from distdbg.errors import ConfigError

KINDS: Final = ("dead", "mismatch", "deadlock")
_KIND_OF: Final = {
    Kind.DEADLOCK: "deadlock",
    Kind.MISMATCH: "mismatch",
    Kind.DEAD_RANK: "dead",
    Kind.MISSING_RANK: "dead",  # of one that is gone
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


def find_hopeless(session: Session, waits: dict[int, tuple[Edge, ...]]) -> frozenset[int]:
    """The ranks that wait and can never go on."""
    gone = {rank for rank, log in session.ranks.items() if log.is_gone}
    return frozenset(find_knots(waits, gone).blocked)


def find_proof(
    session: Session, root: Finding | None, hopeless: Collection[int]
) -> str | None:
    """The kind of DISTDBG_ABORT_ON that this finding is, if it is proven."""
    if root is None or not hopeless:
        return None
    kind = _KIND_OF.get(root.kind)
    if root.kind is Kind.DEADLOCK and not set(root.ranks) <= set(hopeless):
        return None
    if root.kind is Kind.MISSING_RANK:
        logs = [session.ranks.get(rank) for rank in root.ranks]
        if not logs or not all(log is not None and log.is_gone for log in logs):
            return None
    return kind


def to_words(verdict: Verdict, lines: Sequence[str]) -> AbortWords:
    """What every rank raises; `lines` as the agent prints them."""
    root = verdict.root
    details = [line.strip() for line in lines[1:]]
    hint = root.advice if root is not None else ""
    return AbortWords(
        what=lines[0] if lines else verdict.what,
        type=str(root.kind) if root is not None else "deadlock",
        ranks=list(root.ranks) if root is not None else (),
        details=[line for line in details if not line.startswith("hint: ")],
        hint=hint,
        by=AGENT,
    )
