"""How far the clock of this host is from the root's, as NTP finds it. Pure.

    child   a ----\\              / ---- d        offset = ((b - a) + (c - d)) / 2
                   \\            /                error  = ((d - a) - (c - b)) / 2
    parent          b -------- c

The truth lies within offset +- error, however unlike the two ways are: the parent looked at its clock
at some time between a and d. So of many exchanges the quickest is the best, and what a queue or the
scheduler has delayed is passed over. As two clocks drift apart an old exchange says less every second.
Offsets and errors add up along the way to the root.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

#: How fast two clocks may drift apart: each is within 50 parts per million of the truth.
DRIFT: Final = 100e-6
KEPT: Final = 32
KEPT_NS: Final = 60_000_000_000


class Offset(NamedTuple):
    """What to add to a monotonic time here to have the root's, and how wrong that may be."""

    offset_ns: int
    error_ns: int
    """At least 1."""

    def beyond(self, parent: Offset) -> Offset:
        """This one to the parent, and the parent's to the root."""
        return Offset(self.offset_ns + parent.offset_ns, self.error_ns + parent.error_ns)


#: The offset of the root itself.
HERE: Final = Offset(0, 1)


class Exchange(NamedTuple):
    """One question and its answer."""

    offset_ns: int
    error_ns: int
    at_ns: int


class Exchanges:
    """The last ones with one parent."""

    def __init__(self) -> None:
        self._kept: deque[Exchange] = deque(maxlen=KEPT)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, asked_ns: int, heard_ns: int, said_ns: int, answered_ns: int) -> None:
        """One exchange; one that runs backwards is not believed."""
        on_the_way_ns = (answered_ns - asked_ns) - (said_ns - heard_ns)
        if answered_ns < asked_ns or said_ns < heard_ns or on_the_way_ns < 0:
            return
        offset_ns = ((heard_ns - asked_ns) + (said_ns - answered_ns)) // 2
        self._kept.append(Exchange(offset_ns, on_the_way_ns // 2 + 1, answered_ns))

    def best(self, now_ns: int) -> Offset | None:
        """The narrowest one, as old as it is now."""
        found = [
            Offset(one.offset_ns, one.error_ns + int((now_ns - one.at_ns) * DRIFT))
            for one in self._kept
            if now_ns - one.at_ns <= KEPT_NS
        ]
        return min(found, key=lambda offset: offset.error_ns, default=None)
