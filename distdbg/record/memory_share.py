"""A rank that was killed, or got no more memory, and had used much more than the others: something grows.

its_share(end, others)       MemoryShare: 6 times the 56 MiB of the others

Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from statistics import median_high
from typing import Final, NamedTuple

from distdbg.record.durations import nbytes_text
from distdbg.record.ends import RankEnd

#: What a rank may have more than the others: rank 0 keeps the loss, another one a larger shard.
_TIMES: Final = 2
_MORE_NBYTES: Final = 64 << 20


class MemoryShare(NamedTuple):
    """How much the others had used."""

    others_nbytes: int
    has_raised: bool
    """Whether it ended by a MemoryError."""

    @property
    def text(self) -> str:
        """'the other ranks 56 MiB'."""
        return f"the other ranks {nbytes_text(self.others_nbytes)}"

    def advice(self, rank: int) -> str:
        if self.has_raised:
            return (
                f"see what grows on rank {rank} alone: a list, a cache, a view that keeps its array"
            )
        return (
            f"see what takes memory on rank {rank} alone: a scheduler, a memory watchdog or the "
            "program itself may have sent SIGKILL at a limit"
        )


def its_share(
    end: RankEnd, others: Iterable[RankEnd], *, has_raised: bool = False
) -> MemoryShare | None:
    """None where it had used about as much as they, where nobody knows, or where it was not killed.

    `has_raised`: it ended by a MemoryError.
    """
    if (end.signal != signal.SIGKILL and not has_raised) or not end.max_rss_nbytes:
        return None
    used = [one.max_rss_nbytes for one in others if one.max_rss_nbytes and one.rank != end.rank]
    if not used:
        return None
    usual = median_high(used)
    is_more = end.max_rss_nbytes >= max(_TIMES * usual, usual + _MORE_NBYTES)
    return MemoryShare(usual, has_raised) if is_more else None
