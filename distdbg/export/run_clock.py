"""Times on the run's clock. A damaged record may hold any; one that far off is none, or at the edge. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: From 1970 on, 146 years: two times are less than 64 bits apart.
MAX_NS: Final = 2**62 - 1


def is_time(ns: int) -> bool:
    return -MAX_NS <= ns <= MAX_NS


def bound(ns: int) -> int:
    """The time, or the last that there is."""
    return max(-MAX_NS, min(ns, MAX_NS))


def to_run_clock(own_ns: NDArray[np.int64], offset_ns: int) -> NDArray[np.int64]:
    """`bound` of many times of a rank."""
    return (own_ns.clip(-MAX_NS, MAX_NS) + bound(offset_ns)).clip(-MAX_NS, MAX_NS)
