"""The clock of one host's answers. Pure but for the records that it is read from.

Times in answers are wall nanoseconds of this host, from the monotonic clock and the pair of clocks that its
first record was begun with, so they never jump. With every answer comes `clock`:

    base_ns     wall minus monotonic, as used in this answer
    offset_ns   plus a monotonic time of this host it is the root host's
    error_ns    how wrong that may be; 0: nobody has estimated it

A time `t` of host H is on the clock of the job's first host R at

    t - H.base_ns + H.offset_ns + R.base_ns        where H.error_ns is not 0
    t                                              otherwise: all that is known is its own wall clock
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from distdbg.follow.tail import TailedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClock:
    """How the monotonic times of one host become wall times."""

    base_ns: int = 0
    offset_ns: int = 0
    error_ns: int = 0

    def wall_ns(self, monotonic_ns: int) -> int:
        """A time of this host as its wall time."""
        return monotonic_ns + self.base_ns

    def shift_to(self, root: HostClock) -> int:
        """What to add to the times of this host to have them on the clock of `root`."""
        if self == root or not self.error_ns:
            return 0
        return self.offset_ns - root.offset_ns + root.base_ns - self.base_ns

    def plain(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_plain(cls, found: object) -> HostClock:
        """ValueError for what is none."""
        match found:
            case {
                "base_ns": int() as base_ns,
                "offset_ns": int() as offset_ns,
                "error_ns": int() as error_ns,
            }:
                return cls(base_ns=base_ns, offset_ns=offset_ns, error_ns=error_ns)
        raise ValueError("not a clock")


def read_clock(records: Mapping[int, TailedRecord]) -> HostClock:
    """The clock of the host whose records these are; the first rank says what time it is. RecordError."""
    if not records:
        return HostClock()
    first = records[min(records)]
    state = first.state()
    return HostClock(
        base_ns=first.header.to_wall_ns(0),
        offset_ns=state.clock_offset_ns,
        error_ns=state.clock_error_ns,
    )
