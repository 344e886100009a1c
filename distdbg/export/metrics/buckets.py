"""The buckets of records as Prometheus has them. Pure.

A record has `BUCKET_COUNT` buckets of powers of two of nanoseconds: bucket i counts 2**i <= ns <
2**(i+1), the first one 0 as well, the last one all that is longer.

**Classic.** Each power is told from 2**10 ns (about 1 us) to 2**38 ns (275 s), and +Inf; once per job,
so that is cheap, and a percentile is interpolated within a factor of 2. A `le` is exactly a power of
two of nanoseconds, said in seconds, so the counts are exact too, but for an op that took just as long as
a boundary: it counts above it.

**Native** (schema 0: boundaries are powers of two of a second). All 40 buckets are told, one to one:

    record      2**i ns                            2**(i+1) ns = 1.074 * 2**(i-29) s
    native             2**(i-30) s          2**(i-29) s
                        0.93 of it             |

A bucket of a record begins and ends 7.4 % after the native one that holds most of it. It is told as
that one, so a percentile is up to 7 % too low; counts and sums are exact. Ops of 0 or 1
ns are in the zero bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from distdbg.record.format import BUCKET_COUNT

#: 2**k nanoseconds are a `le`.
LE_EXPONENTS: Final = tuple(range(10, 39))
#: In seconds, as samples are labelled.
LE_SECONDS: Final = tuple(2**k / 1e9 for k in LE_EXPONENTS)
LE_LABELS: Final = (*map(repr, LE_SECONDS), "+Inf")
#: Series of a histogram: its buckets, sum and count.
CLASSIC_SERIES: Final = len(LE_LABELS) + 2

SCHEMA: Final = 0
#: What the zero bucket holds: the first bucket of a record.
ZERO_THRESHOLD_S: Final = 2.0**-29
#: The native index of bucket i of a record is i - this.
_NATIVE_SHIFT: Final = 29


class Native(NamedTuple):
    """What a native histogram is made of: runs of buckets, and the differences of their counts."""

    zero_count: int
    spans: tuple[tuple[int, int], ...]
    """(offset from the end of the one before, length)."""
    deltas: tuple[int, ...]


def cumulative(buckets: Sequence[int]) -> list[int]:
    """How many are below each `le`, +Inf last."""
    below = [0, *accumulate(buckets)]
    return [below[min(k, len(buckets))] for k in LE_EXPONENTS] + [below[-1]]


def le_index(ns: int) -> int:
    """Which of the classic buckets a value is counted in."""
    return next((i for i, k in enumerate(LE_EXPONENTS) if ns < 1 << k), len(LE_EXPONENTS))


def bucket_of(ns: int) -> int:
    """Which bucket of a record."""
    return min(max(ns.bit_length() - 1, 0), BUCKET_COUNT - 1)


def native(buckets: Sequence[int]) -> Native:
    """The same as a native histogram."""
    spans: list[tuple[int, int]] = []
    deltas: list[int] = []
    last = 0
    end = 0
    for i, count in enumerate(buckets):
        if i == 0 or not count:
            continue
        index = i - _NATIVE_SHIFT
        if spans and index == end:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((index - end, 1))
        end = index + 1
        deltas.append(count - last)
        last = count
    return Native(buckets[0] if buckets else 0, tuple(spans), tuple(deltas))
