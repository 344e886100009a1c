"""Ops grouped by fields: counts, bytes, times, bandwidths. Pure.

Times are those from issue to end, including the wait for late ranks. Bandwidths are over the transfer
alone, from the arrival of the last rank (over the whole time where that is unknown), so they compare with
those of nccl-tests on the same hardware, which has no late ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.bandwidth import bus_factor
from distdbg.diagnose.op_fields import FIELDS, SessionView, Value, group_size, size
from distdbg.diagnose.ops import NEVER, OpRef, Ops
from distdbg.errors import UsageError

#: What can be summed up by: fields of an op; `size` is the same as nbytes.
KEYS: Final = (
    "kind", "group", "size", "dtype", "op", "name", "site", "rank", "host", "status", "root",
    "peer", "comm", "async",
)  # fmt: skip

_MAX_NS: Final = 2**63 - 1


@dataclass(slots=True)
class OpSums:
    """The ops that have one key."""

    key: tuple[Value, ...]
    count: int = 0
    ended: int = 0
    nbytes: int = 0
    durations_ns: array[int] = field(default_factory=lambda: array("q"))
    is_sorted: bool = False
    moved_nbytes: int = 0
    """The number of ops whose time of transfer is known."""
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

    def add(self, other: OpSums) -> None:
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


def sum_up(view: SessionView, ops: Iterable[OpRef], keys: Sequence[str]) -> list[OpSums]:
    """One row per combination of values, those that took longest first."""
    read = [FIELDS["nbytes" if key == "size" else key].read for key in keys]
    rows: dict[tuple[Value, ...], OpSums] = {}
    #: Millions of ops are of few sorts: all that a key can ask for is looked up once for each.
    sorts: dict[tuple[int, ...], _Sort] = {}
    for op in ops:
        columns = view.session.ranks[op.rank].ops
        mark = _mark(columns, op)
        sort = sorts.get(mark)
        if sort is None:
            key = tuple(one(view, op) for one in read)
            row = rows.setdefault(key, OpSums(key))
            sort = sorts[mark] = _Sort(row, size(view, op), _factor(view, op))
        sort.add(columns, op.at)
    return sorted(
        rows.values(),
        key=lambda row: (-row.total_ns, -row.count, tuple(str(value) for value in row.key)),
    )


def _mark(columns: Ops, op: OpRef) -> tuple[int, ...]:
    at = op.at
    return (
        op.rank,
        columns.form[at],
        columns.group[at],
        columns.kind[at],
        columns.stack[at],
        columns.status[at],
        columns.peer[at],
        columns.flags[at],
        columns.comm[at] if columns.comm else 0,
    )


def _factor(view: SessionView, op: OpRef) -> float | None:
    """None for what has no bandwidth: what failed has not moved its bytes."""
    if view.session.ranks[op.rank].ops.status[op.at]:
        return None
    return bus_factor(view.session.kind_of(op), group_size(view, op))


@dataclass(slots=True)
class _Sort:
    """Ops of one rank that differ in their times alone."""

    row: OpSums
    nbytes: int
    factor: float | None

    def add(self, columns: Ops, at: int) -> None:
        row = self.row
        row.count += 1
        row.nbytes += self.nbytes
        ended_ns = columns.ended_ns[at]
        if ended_ns == NEVER:
            return
        took_ns = ended_ns - columns.issued_ns[at]
        row.ended += 1
        row.durations_ns.append(min(max(took_ns, 0), _MAX_NS))
        if self.factor is None or not self.nbytes:
            return
        started_ns = columns.started_ns[at]
        moved_ns = took_ns if started_ns == NEVER else ended_ns - started_ns
        if moved_ns > 0:
            row.moved_nbytes += self.nbytes
            row.moved_ns += moved_ns
            row.bus_nbytes += self.nbytes * self.factor
