"""Ops summed up by what they have in common: counts, bytes, times, bandwidths. Pure.

Times are those from issue to end, with the wait for ranks that came late. The bandwidths are over the
transfer alone, from when all ranks had come (the whole time where nobody knows when that was): then they
can be compared with what nccl-tests says of the same hardware, which has no late ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.bandwidth import bus_factor
from distdbg.diagnose.op_fields import FIELDS, Value, View, duration, group_size, size, transfer
from distdbg.diagnose.ops import OpRef
from distdbg.errors import UsageError

#: What can be summed up by: fields of an op; `size` is the same as nbytes.
KEYS: Final = (
    "kind", "group", "size", "dtype", "op", "name", "site", "rank", "host", "status", "root",
    "peer", "comm", "async",
)  # fmt: skip


@dataclass(slots=True)
class Sums:
    """The ops that have one key."""

    key: tuple[Value, ...]
    count: int = 0
    ended: int = 0
    nbytes: int = 0
    durations_ns: array[int] = field(default_factory=lambda: array("q"))
    is_sorted: bool = False
    moved_nbytes: int = 0
    """Of the ops whose time of transfer is known."""
    moved_ns: int = 0
    bus_nbytes: float = 0.0
    """The same times the factor of each op."""

    def percentile_ns(self, share: float) -> int | None:
        """The duration that this share of the ops does not exceed; None without ended ones."""
        if not self.durations_ns:
            return None
        if not self.is_sorted:
            self.durations_ns = array("q", sorted(self.durations_ns))
            self.is_sorted = True
        last = len(self.durations_ns) - 1
        return self.durations_ns[min(last, int(share * len(self.durations_ns)))]

    def add(self, other: Sums) -> None:
        """Take in another row."""
        self.count += other.count
        self.ended += other.ended
        self.nbytes += other.nbytes
        self.durations_ns.extend(other.durations_ns)
        self.is_sorted = False
        self.moved_nbytes += other.moved_nbytes
        self.moved_ns += other.moved_ns
        self.bus_nbytes += other.bus_nbytes

    @property
    def total_ns(self) -> int:
        return sum(self.durations_ns)

    @property
    def algorithm_bandwidth(self) -> float | None:
        """Bytes per second; None where nothing was moved."""
        return self.moved_nbytes / self.moved_ns * 1e9 if self.moved_ns else None

    @property
    def bus_bandwidth(self) -> float | None:
        """Bytes per second."""
        return self.bus_nbytes / self.moved_ns * 1e9 if self.moved_ns else None


def read_keys(text: str) -> tuple[str, ...]:
    """'kind,size' as names; UsageError for one that is none."""
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    for key in keys:
        if key not in KEYS:
            raise UsageError(
                f"query: ops cannot be summed up by {key!r}", hint=f"by any of {', '.join(KEYS)}"
            )
    return keys


def sum_up(view: View, ops: Iterable[OpRef], keys: Sequence[str]) -> list[Sums]:
    """One row per combination of values, those that took longest first."""
    read = [FIELDS["nbytes" if key == "size" else key].read for key in keys]
    rows: dict[tuple[Value, ...], Sums] = {}
    for op in ops:
        key = tuple(one(view, op) for one in read)
        row = rows.get(key)
        if row is None:
            row = rows[key] = Sums(key)
        _add(row, view, op)
    return sorted(rows.values(), key=lambda row: (-row.total_ns, -row.count, _sortable(row.key)))


def _add(row: Sums, view: View, op: OpRef) -> None:
    nbytes = size(view, op)
    row.count += 1
    row.nbytes += nbytes
    took_ns = duration(view, op)
    if took_ns is None:
        return
    row.ended += 1
    row.durations_ns.append(min(max(took_ns, 0), 2**63 - 1))
    factor = bus_factor(view.session.kind_of(op), group_size(view, op))
    moved_ns = transfer(view, op)
    moved_ns = took_ns if moved_ns is None else moved_ns
    # An op that failed has not moved its bytes.
    if (
        factor is None
        or not nbytes
        or moved_ns <= 0
        or view.session.ranks[op.rank].ops.status[op.at]
    ):
        return
    row.moved_nbytes += nbytes
    row.moved_ns += moved_ns
    row.bus_nbytes += nbytes * factor


def _sortable(key: tuple[Value, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in key)
