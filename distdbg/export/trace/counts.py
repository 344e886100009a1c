"""Counters over the time of a rank: at most some hundred values each, however many ops there are. Pure.

The mean of how many ops are in flight at once, and of how many wait for other ranks (of a program that waits
for each op: the share of its time), and bytes of the ops that ended, per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from distdbg.export.trace.lanes import OPEN
from distdbg.export.trace.moments import values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distdbg.diagnose.session import Session
    from distdbg.export.trace.slices import RankSlices

_MAX_BINS: Final = 512
_OPS_PER_BIN: Final = 8


@dataclass(frozen=True, slots=True)
class Series:
    """One counter; times are the beginnings of what its values are of."""

    name: str
    unit: str
    times: NDArray[np.int64]
    values: NDArray[np.float64]

    def changes(self) -> Iterator[tuple[int, float]]:
        """Time and value where it differs from before."""
        last = None
        for at_ns, value in zip(self.times.tolist(), self.values.tolist(), strict=True):
            if value != last:
                yield at_ns, value
                last = value


def count(session: Session, slices: RankSlices, until_ns: int) -> list[Series]:
    """All counters of one rank, and the numbers that it marked.

    `until_ns`: until when what is in flight is known to be.
    """
    series = _count_ops(session, slices, until_ns)
    for name, values in values_of(slices.log).items():
        times, numbers = zip(*values, strict=True)
        series.append(Series(name, "", np.array(times), np.array(numbers, np.float64)))
    return series


def _count_ops(session: Session, slices: RankSlices, until_ns: int) -> list[Series]:
    begins = slices.begins
    if len(begins) < 2:
        return []
    ends = np.minimum(slices.ends, max(until_ns, int(begins.max())))
    low, high = int(begins.min()), int(ends.max()) + 1
    bins = int(np.clip(len(begins) // _OPS_PER_BIN, 16, _MAX_BINS))
    edges = np.unique(np.linspace(low, high, bins + 1).astype(np.int64))
    if len(edges) < 2:  # times of a damaged record, so far off that floats do not tell them apart
        return []
    widths = np.diff(edges)
    waits = np.minimum(slices.waited_until, ends)
    nbytes = _nbytes(session, slices)
    has_ended = slices.ends != OPEN
    into = np.clip(np.searchsorted(edges, ends[has_ended], "right") - 1, 0, len(widths) - 1)
    volumes = np.bincount(into, nbytes[has_ended], len(widths))
    return [
        Series("ops in flight", "ops", edges[:-1], _means(begins, ends, edges)),
        Series("ops that wait for others", "ops", edges[:-1], _means(begins, waits, edges)),
        Series("bytes per second", "bytes", edges[:-1], np.round(volumes / widths * 1e9)),
    ]


def _means(
    begins: NDArray[np.int64], ends: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How many intervals cover each bin, in the mean, to three digits."""
    covered = np.diff(_sum_before(begins, edges) - _sum_before(ends, edges))
    return np.round(covered / np.diff(edges), 3)


def _sum_before(times: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """At each edge, how long ago the times before it were, in sum."""
    ordered = np.sort(times) - edges[0]
    before = np.searchsorted(ordered, edges - edges[0])
    sums = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    ago: NDArray[np.float64] = before * (edges - edges[0]).astype(np.float64) - sums[before]
    return ago


def _nbytes(session: Session, slices: RankSlices) -> NDArray[np.float64]:
    forms = np.frombuffer(slices.log.ops.form, np.int32)
    known, inverse = np.unique(forms, return_inverse=True)
    table = np.array([max(session.forms[form].nbytes, 0) for form in known.tolist()], np.float64)
    return table[inverse]
