"""Numbers for the processes of a trace: there a number is one process, whatever host it ran on. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from distdbg.export.reading import RunStart

_PER_START: Final = 10_000_000


def choose_pids(start: RunStart) -> dict[int, int]:
    """By rank: its pid where the trace has one start of a job with a pid of each; else made from its rank."""
    pids = start.pids
    once = all(times == 1 for times in Counter(pids.values()).values())
    if once and start.session.attempts == 1 and all(pids.get(rank, 0) > 0 for rank in start.ranks):
        return pids
    first = _PER_START * (start.number + 1)
    return {rank: first + rank for rank in start.ranks}
