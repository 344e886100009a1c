"""What the first lines of these findings are put together from: ranks, sites, shares, one op in words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.errors import format_ranks
from distdbg.record.entries import Frame

_MOST_LINES: Final = 8


def say_ranks(ranks: Iterable[int]) -> str:
    """'rank 3' or 'ranks 0-2,7'."""
    words = format_ranks(ranks)
    return f"rank {words}" if words.isdecimal() else f"ranks {words}"


def say_site(site: Frame | None) -> str:
    """'train.py:88 (step)'; ''."""
    if site is None:
        return ""
    return f"{os.path.basename(site.file) or '?'}:{site.line} ({site.function})"


def site_of(session: Session, op: OpRef) -> str:
    """Where it was called; ''."""
    return say_site(session.site_of(op))


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
    words = text or f"rank {op.rank} called {session.name_of(op)}{at_site(session, op)}"
    return Evidence(
        text=words,
        rank=op.rank,
        op=op,
        site=site_of(session, op),
        at_ns=session.time_ns(op.rank, ops.issued_ns[op.at]),
    )


def few(items: Sequence[Evidence], most: int = _MOST_LINES) -> tuple[Evidence, ...]:
    """The first few, and how many more there are."""
    if len(items) <= most:
        return tuple(items)
    return (*items[:most], Evidence(text=f"and {len(items) - most} more"))
