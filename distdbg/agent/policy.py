"""What may end a job: DISTDBG_ABORT_ON, and what is proven. Pure.

A rank is dead for the others when it failed and nobody had asked it to end. Most ranks learn of it by
themselves, at once: native waits watch their peers. Who still waits a second later waits in a group, or
for a message, that the dead rank is no part of, but whose other members need it. Only then the agent
speaks. Ranks that have caught the error and go on, in ops that they began later, are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from distdbg.control.words import AbortWords
from distdbg.errors import ConfigError, format_ranks
from distdbg.record.ends import RankEnd

#: How long ranks may take to raise by themselves.
GRACE_NS: Final = 1_000_000_000
KINDS: Final = ("dead", "mismatch", "deadlock")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rank that waits in an op."""

    rank: int
    since_ns: int
    op: str
    site: str


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


def find_verdict(
    ends: Iterable[RankEnd],
    waiting: Sequence[Waiting],
    findings: Sequence[dict[str, Any]],
    left: frozenset[int],
    abort_on: frozenset[str],
    now_ns: int,
) -> AbortWords | None:
    """The words that end the job; None: nothing is proven, or nobody needs to be told.

    `findings` are those of this start of the ranks, `left` the ranks that had left their groups in
    good order before they ended. Times are of this host.
    """
    failed = [e for e in ends if e.is_failure and not e.was_asked and e.rank not in left]
    if not failed:
        return None
    first = min(failed, key=lambda end: end.ended_ns)
    stuck = [w for w in waiting if w.since_ns < first.ended_ns and w.rank != first.rank]
    if not stuck or now_ns - first.ended_ns < GRACE_NS:
        return None
    mismatch = next((f for f in findings if f.get("type") == "MismatchError"), None)
    details = [
        f"rank {w.rank} waits in {w.op}" + (f" at {w.site}" if w.site else "") for w in stuck
    ]
    if mismatch is not None and "mismatch" in abort_on:
        return AbortWords(
            what=str(mismatch.get("what", "")),
            type="mismatch",
            ranks=[r for r in mismatch.get("ranks", ()) if isinstance(r, int)],
            details=[*map(str, mismatch.get("details", ())), *details[:8]],
            hint=str(mismatch.get("hint") or ""),
            by="the agent",
        )
    if "dead" not in abort_on:
        return None
    others = format_ranks(w.rank for w in stuck)
    return AbortWords(
        what=f"rank {first.rank} {first.how} while {'rank' if others.isdecimal() else 'ranks'} "
        f"{others} waited",
        type="dead rank",
        ranks=[first.rank],
        details=details[:8],
        by="the agent",
    )
