"""What a record has of a rank's loops over batches: its marks, beside its calls on one group. Pure values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopMark:
    """One mark of a rank."""

    name: str
    value: int
    at_ns: int
    loop: str
    """What is the same for all marks of one loop: where it is."""


@dataclass(frozen=True, slots=True)
class LoopTrack:
    """What the record of one rank has of its loops, and of its calls on one group; both in order."""

    marks: Sequence[LoopMark]
    seqs: Sequence[int]
    """Of the group's collectives."""
    issued_ns: Sequence[int]

    def seq_at(self, at_ns: int) -> int:
        """The number of the last call before a moment; 0 for none.

        The ring has marks and calls in one order: what is before its first call is right before that one.
        """
        index = bisect_right(self.issued_ns, at_ns)
        if index:
            return self.seqs[index - 1]
        return self.seqs[0] - 1 if self.seqs else 0
