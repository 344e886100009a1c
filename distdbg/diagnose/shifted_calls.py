"""A rank whose calls are shifted against the others': it skipped some, or made extra ones. Pure.

After a skipped call all later calls differ from those of the others, because of that one mistake. It is
recognised when the rank's calls from there on equal those of the others some places further on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: How many calls may have been skipped, or be too many.
_MAX_SHIFT: Final = 4
#: So many calls in a row must fit where call sites are not known, or differ.
_ENOUGH: Final = 3
_MAX_COMPARED: Final = 256

#: (seq of the odd rank, seq of the others) -> whether they can be one call, and were made at one line.
Compare = Callable[[int, int], tuple[bool, bool] | None]


@dataclass(frozen=True, slots=True)
class CallShift:
    """A rank that is so many calls off from some seq on."""

    skipped: int
    """So many of the others' calls it did not make; negative: it made so many more."""
    fitting: int
    """How many calls fit since."""


def find_slip(compare: Compare, seq: int) -> CallShift | None:
    """Look from the first call that differs; `compare` gives None where one of the calls is not known."""
    if _count(compare, seq + 1, seq + 1) is not None:
        return None  # only that one call differs
    best: tuple[tuple[int, int, int], CallShift] | None = None
    for shift in range(1, _MAX_SHIFT + 1):
        for skipped, theirs, others in ((shift, seq, seq + shift), (-shift, seq + shift, seq)):
            found = _count(compare, theirs, others)
            if found is None:
                continue
            fitting, at_line = found
            if fitting >= _ENOUGH or at_line == fitting:
                score = (at_line, fitting, -shift)
                if best is None or score > best[0]:
                    best = score, CallShift(skipped, fitting)
    return None if best is None else best[1]


def _count(compare: Compare, theirs: int, others: int) -> tuple[int, int] | None:
    """How many calls fit from there on and how many at one line; None: one does not, or none is known."""
    fitting = at_line = 0
    for step in range(_MAX_COMPARED):
        found = compare(theirs + step, others + step)
        if found is None:
            break
        if not found[0]:
            return None
        fitting += 1
        at_line += found[1]
    return (fitting, at_line) if fitting else None
