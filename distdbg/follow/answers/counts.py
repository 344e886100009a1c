"""Ops by group and kind, as the ranks of this host have counted them since each group was made.

The counters of a rank are one short read. Buckets and waits by rank are in the answer as well, so that
what several hosts say can be added up as exactly as what several ranks say: see `diagnose/counting.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdbg.diagnose.counting import OpTally, add_up, from_counter
from distdbg.follow.tail import TailedRecord
from distdbg.record.format import BUCKET_COUNT


def count_ops(records: Mapping[int, TailedRecord]) -> list[OpTally]:
    """One row per group and kind, what took longest first. RecordError when a record was cut short."""
    parts = []
    for rank, record in records.items():
        for counter in record.counters():
            group = record.group(counter.group) if counter.ended else None
            if group is not None:
                parts.append(from_counter(rank, group.name, group.size, counter))
    return add_up(parts)


def plain_counted(row: OpTally) -> dict[str, Any]:
    """One row of the answer; buckets without the empty ones at their end."""
    return {
        "group": row.group,
        "kind": row.kind,
        "size": row.size,
        "ended": row.ended,
        "count": row.count,
        "failed": row.failed,
        "nbytes": row.nbytes,
        "duration_ns": row.duration_ns,
        "wait_ns": row.wait_ns,
        "longest_ns": row.longest_ns,
        "p50_ns": _rounded(row.duration(0.5)),
        "p99_ns": _rounded(row.duration(0.99)),
        "wait_p50_ns": _rounded(row.wait(0.5)),
        "wait_p99_ns": _rounded(row.wait(0.99)),
        "bus_nbytes_per_s": _rounded(row.bus_nbytes_per_s),
        "late": [list(one) for one in row.late],
        "waits": [[rank, *wait] for rank, wait in row.waits.items()],
        "duration_buckets": _short(row.duration_buckets),
        "wait_buckets": _short(row.wait_buckets),
    }


def read_counted(words: Mapping[str, Any]) -> OpTally:
    """A row of an answer; ValueError, TypeError or KeyError for what is none."""
    return OpTally(
        group=str(words["group"]),
        kind=str(words["kind"]),
        size=int(words["size"]),
        ended=int(words["ended"]),
        count=int(words["count"]),
        failed=int(words["failed"]),
        nbytes=int(words["nbytes"]),
        duration_ns=int(words["duration_ns"]),
        wait_ns=int(words["wait_ns"]),
        longest_ns=int(words["longest_ns"]),
        duration_buckets=_long(words["duration_buckets"]),
        wait_buckets=_long(words["wait_buckets"]),
        waits={int(rank): (int(ended), int(ns)) for rank, ended, ns in words["waits"]},
    )


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _short(buckets: tuple[int, ...]) -> list[int]:
    count = len(buckets)
    while count and not buckets[count - 1]:
        count -= 1
    return list(buckets[:count])


def _long(buckets: list[int]) -> tuple[int, ...]:
    if len(buckets) > BUCKET_COUNT:
        raise ValueError("too many buckets")
    return (*map(int, buckets), *([0] * (BUCKET_COUNT - len(buckets))))
