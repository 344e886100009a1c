"""Phrases that several finders share: an op as evidence, percentages, lists with a bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_op, say_site, site_of

_MAX_LINES: Final = 8
_MAX_RANKS: Final = 1 << 16
#: 'ranks 0-2 called it at train.py:80 (step)', 'rank 1: not contiguous, at train.py:22 (main)'.
_TOLD: Final = re.compile(
    r"ranks? (?P<ranks>\d{1,9}(?:[-,]\d{1,9})*)\b.* (?:at|from) (?P<site>\S+:\d+ \([^()]*(?:\(\))?[^()]*\))"
)


def at_site(session: Session, op: OpRef) -> str:
    """' at train.py:88 (step)'; ''."""
    site = site_of(session, op)
    return f" at {site}" if site else ""


def say_share(share: float) -> str:
    """'all', '7 %'."""
    return "all" if share >= 0.995 else f"{share:.0%}".replace("%", " %")


def called(session: Session, op: OpRef, text: str = "") -> Evidence:
    """That a rank called an op, or what `text` says of it."""
    ops = session.ranks[op.rank].ops
    return Evidence(
        text=text or f"rank {op.rank} called {say_op(session, op)}",
        rank=op.rank,
        op=op,
        site=site_of(session, op),
        at_ns=session.time_ns(op.rank, ops.issued_ns[op.at]),
    )


def as_evidence(line: str) -> Evidence:
    """What a rank's own check wrote, with the ranks and the place that it names."""
    found = _TOLD.fullmatch(line)
    ranks = _read_ranks(found["ranks"]) if found else ()
    if not found or not ranks:
        return Evidence(text=line)
    return Evidence(text=line, rank=ranks[0], ranks=ranks, site=found["site"])


def _read_ranks(text: str) -> tuple[int, ...]:
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) - int(first) >= _MAX_RANKS:
            return ()
        ranks += range(int(first), int(last or first) + 1)
    return tuple(ranks)


def few(items: Sequence[Evidence], most: int = _MAX_LINES) -> tuple[Evidence, ...]:
    """The first few, and how many more there are."""
    if len(items) <= most:
        return tuple(items)
    return (*items[:most], Evidence(text=f"and {len(items) - most} more"))


def telling_site(session: Session, call: OpRef) -> str:
    """The innermost line that no other call of the rank has: of a helper's callers the right one; ''."""
    ops = session.ranks[call.rank].ops
    stack = session.stacks[ops.stack[call.at]]
    others = {session.stacks[index] for index in set(ops.stack)} - {stack}
    for depth, frame in enumerate(stack):
        if not any(frame in other[: depth + 1] for other in others):
            return say_site(frame)
    return say_site(stack[0] if stack else None)
