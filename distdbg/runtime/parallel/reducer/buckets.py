"""Decides which parameters share a bucket, and in which order buckets are reduced. Pure.

A bucket has one dtype. Parameters are taken in order; a bucket is full as soon as it has at least as many
bytes as its limit, and the next one of that dtype has the next limit (the last limit holds for all that
follow). That is torch's rule, so both reduce the same buckets.

    before the first pass   nobody knows in which order gradients come: one bucket for each dtype, reduced
                            at the end; where parameters may have no gradient, buckets of the limits, the last
                            parameters first
    after it                the parameters in the order in which rank 0 got their gradients
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real

from distdbg.errors import UsageError
from distdbg.runtime.parallel.reducer.parameters import Parameter

_MIB = 1 << 20
DEFAULT_CAP_MB = 25
#: Size of the first bucket, unless the user chose one: its op shall begin early.
FIRST_NBYTES = _MIB

Buckets = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How large buckets get, in bytes: the first ones, and the last number for all others."""

    limits: tuple[int, ...] = (FIRST_NBYTES, DEFAULT_CAP_MB * _MIB)
    #: Whether the user gave a size for each bucket.
    is_list: bool = False

    @classmethod
    def of(cls, cap_mb: float | None, cap_mb_list: Sequence[float] | None = None) -> Capacity:
        """From what DistributedDataParallel takes. UsageError unless all are above zero."""
        if cap_mb_list:
            _check(cap_mb_list)
            return cls(tuple(int(each * _MIB) for each in cap_mb_list), True)
        if cap_mb is None:
            return cls()
        _check([cap_mb])
        return cls((int(cap_mb * _MIB),))

    @property
    def most(self) -> int:
        """The size that most buckets have."""
        return self.limits[-1]

    def first_buckets(self, parameters: Sequence[Parameter], may_lack: bool) -> Buckets:
        """Before any pass; `may_lack`: parameters may have no gradient."""
        limits = self.limits if self.is_list or may_lack else (sys.maxsize,)
        found = assign(parameters, range(len(parameters)), limits)
        return tuple(sorted(found, key=min, reverse=True))

    def buckets(self, parameters: Sequence[Parameter], order: Sequence[int]) -> Buckets:
        """In the order in which gradients come."""
        return assign(parameters, order, self.limits)


def _check(sizes: Sequence[object]) -> None:
    for size in sizes:
        if not isinstance(size, Real) or not 0 < float(size) < inf:
            raise UsageError(f"the size of a bucket is more than 0 MiB, not {size!r}")


def assign(parameters: Sequence[Parameter], order: Sequence[int], limits: Sequence[int]) -> Buckets:
    """The buckets of the parameters in this order, by the moment at which they are full."""
    full: list[tuple[int, ...]] = []
    open_buckets: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    place: dict[str, int] = {}
    for index in order:
        parameter = parameters[index]
        dtype = parameter.dtype
        open_buckets.setdefault(dtype, []).append(index)
        sizes[dtype] = sizes.get(dtype, 0) + parameter.nbytes
        at = place.get(dtype, 0)
        if sizes[dtype] >= limits[at]:
            full.append(tuple(open_buckets.pop(dtype)))
            sizes[dtype] = 0
            place[dtype] = min(at + 1, len(limits) - 1)
    return (*full, *(tuple(bucket) for bucket in open_buckets.values()))
