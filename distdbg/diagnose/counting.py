"""Totals of the ops of one kind on one group, from the counters of many ranks. Pure.

A record counts every op for good, also those that its ring has long overwritten. Of the times it keeps
buckets (from 2**i below 2**(i+1) nanoseconds), so a percentile is exact to its bucket and interpolated
within it, and those of many ranks are those of the sum.

Who is late follows from the waits. An op starts when its last rank has arrived, so the wait of a rank is how
much earlier it arrived; over many ops the differences of the waits of two ranks are exactly how much later
one arrived than the other, in total. A rank that others wait for in a share p of all the time that is waited
waits itself (1 - p) of what a rank waits that is never late. So:

    share of late arrivals of a rank  =  1 - its mean wait / the mean wait of those that wait long

which counts each arrival by how late it was: a rank that is the last of each op has 1, two that take
turns have half each. "Those that wait long" is the third quartile of the ranks, the most of less than four:
one rank that waits for something else does not make all others late. Ranks that arrive in random order wait
alike, and none is late. Nothing is late where that wait is shorter than `LEAST_WAIT_NS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.bandwidth import bus_factor
from distdbg.record.entries import Counter, label_of_kind
from distdbg.record.format import BUCKET_COUNT

#: Below this mean wait of an op nobody has waited for anybody: it is how the machine schedules.
LEAST_WAIT_NS: Final = 20_000
#: Their start is one moment on all ranks.
_MEETINGS: Final = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
)
#: A share below this is noise.
_LEAST_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTally:
    """Ops of one kind on one group, over the ranks that were added up."""

    group: str
    """Its name."""
    kind: str
    size: int
    """Size of the group; 0: not known."""
    ended: int
    """Calls that ended, of all ranks together."""
    count: int
    """Ops: of a collective the most that one rank has called, of messages all calls."""
    failed: int
    nbytes: int
    """As each rank counts it, of all ranks together."""
    duration_ns: int
    wait_ns: int
    longest_ns: int
    duration_buckets: tuple[int, ...]
    wait_buckets: tuple[int, ...]
    waits: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By rank: calls that ended, and what they waited altogether."""

    @property
    def bus_nbytes_per_s(self) -> float | None:
        """Bus bandwidth from when all had come to the end, as nccl-tests counts it; None: has none."""
        factor = bus_factor(self.kind, self.size)
        moved_ns = self.duration_ns - self.wait_ns
        if factor is None or moved_ns <= 0 or not self.nbytes:
            return None
        # Only the root of these has the side with all parts; the others count theirs.
        if self.kind in ("gather", "scatter"):
            return None
        return self.nbytes * factor / moved_ns * 1e9

    @property
    def late(self) -> tuple[tuple[int, float], ...]:
        """Ranks and their share of the late arrivals, the worst first; () where nothing is to be seen."""
        return late_shares(self.waits) if self.kind in _MEETINGS else ()

    def duration(self, share: float) -> float | None:
        """The percentile of the durations, in nanoseconds; 0.99: what 99 of 100 stay below."""
        found = percentile(self.duration_buckets, share)
        return None if found is None else min(found, float(self.longest_ns))

    def wait(self, share: float) -> float | None:
        """The percentile of the times from issue until all had come."""
        found = percentile(self.wait_buckets, share)
        return None if found is None else min(found, float(self.longest_ns))


def from_counter(rank: int, group: str, size: int, counter: Counter) -> OpTally:
    """What one rank has counted, of one dtype."""
    return OpTally(
        group=group,
        kind=label_of_kind(counter.kind) or f"kind {counter.kind}",
        size=size,
        ended=counter.ended,
        count=counter.ended,
        failed=counter.failed,
        nbytes=counter.nbytes,
        duration_ns=counter.duration_ns,
        wait_ns=min(counter.wait_ns, counter.duration_ns),
        longest_ns=counter.longest_ns,
        duration_buckets=counter.duration_buckets,
        wait_buckets=counter.wait_buckets,
        waits={rank: (counter.ended, counter.wait_ns)},
    )


def add_up(parts: Iterable[OpTally]) -> list[OpTally]:
    """Add up those of the same kind and group, the ones that took longest first."""
    sums: dict[tuple[str, str], list[OpTally]] = {}
    for part in parts:
        sums.setdefault((part.group, part.kind), []).append(part)
    found = [_sum(one) for one in sums.values()]
    return sorted(found, key=lambda one: (-one.duration_ns, one.group, one.kind))


def _sum(parts: Sequence[OpTally]) -> OpTally:
    first = parts[0]
    if len(parts) == 1:
        return first
    is_message = first.kind in ("send", "recv")
    waits = _add_waits(parts)
    counts = [part.count for part in parts]
    return OpTally(
        group=first.group,
        kind=first.kind,
        size=max(part.size for part in parts),
        ended=sum(part.ended for part in parts),
        # A rank with ops of several dtypes has a part for each.
        count=sum(counts) if is_message else max(*counts, *(ended for ended, _ in waits.values())),
        failed=sum(part.failed for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        duration_ns=sum(part.duration_ns for part in parts),
        wait_ns=sum(part.wait_ns for part in parts),
        longest_ns=max(part.longest_ns for part in parts),
        duration_buckets=tuple(map(sum, zip(*(p.duration_buckets for p in parts), strict=True))),
        wait_buckets=tuple(map(sum, zip(*(p.wait_buckets for p in parts), strict=True))),
        waits=waits,
    )


def _add_waits(parts: Sequence[OpTally]) -> dict[int, tuple[int, int]]:
    waits: dict[int, tuple[int, int]] = {}
    for part in parts:
        for rank, (ended, wait_ns) in part.waits.items():
            before, before_ns = waits.get(rank, (0, 0))
            waits[rank] = (before + ended, before_ns + wait_ns)
    return waits


def late_shares(waits: Mapping[int, tuple[int, int]]) -> tuple[tuple[int, float], ...]:
    """Return for each rank its calls and the sum of the waits for it, the worst first."""
    means = {rank: wait / ended for rank, (ended, wait) in waits.items() if ended}
    if len(means) < 2:
        return ()
    long = sorted(means.values())[min(len(means) - 1, 3 * len(means) // 4)]
    if long < LEAST_WAIT_NS:
        return ()
    shares = ((rank, 1 - mean / long) for rank, mean in means.items())
    found = [(rank, round(share, 3)) for rank, share in shares if share >= _LEAST_SHARE]
    return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """The value that `share` of all stay below, linear within its bucket; None: there are none."""
    total = sum(buckets)
    if total == 0:
        return None
    wanted = share * total
    below = 0
    for index, count in enumerate(buckets):
        if count and below + count >= wanted:
            low = float(2**index) if index else 0.0
            return low + (2.0 ** (index + 1) - low) * (wanted - below) / count
        below += count
    return 2.0**BUCKET_COUNT
