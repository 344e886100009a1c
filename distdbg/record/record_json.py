"""A record as plain values that JSON can hold: the same names as in `entries.py`."""

from __future__ import annotations

import dataclasses
import math
from enum import Enum
from typing import Any

from distdbg.record.entries import Event, Group, OpEntry, Record, RecordedFrame, label_of_kind
from distdbg.record.text import quantile_ns


def to_plain(record: Record, *, is_live: bool, most_events: int) -> dict[str, Any]:
    """Return a dict of the whole record, with `most_events` of its events, the last ones."""
    events = sorted(record.events, key=lambda event: event.number)
    in_flight = [op for op in record.ops if op.ended_ns is None]
    return {
        "path": record.path,
        "is_live": is_live,
        "header": _plain(record.header),
        "state": _plain(record.state),
        "groups": [
            {**_fields(group), "progress": _plain(record.progress.get(group.number))}
            for group in record.groups
        ],
        "counters": [
            {
                **_fields(counter),
                "kind": _kind(counter.kind),
                "p50_ns": quantile_ns(counter.duration_buckets, 0.5),
                "p99_ns": quantile_ns(counter.duration_buckets, 0.99),
            }
            for counter in record.counters
        ],
        "in_flight": [_event(op) for op in in_flight],
        "events": [_event(event) for event in (events[-most_events:] if most_events else [])],
        "gaps": _plain(record.gaps),
    }


def _kind(number: int) -> str | int:
    return label_of_kind(number) or number


def _event(event: Event) -> dict[str, Any]:
    values = {"type": type(event).__name__.removesuffix("Entry"), **_fields(event)}
    group = getattr(event, "group", None)
    if isinstance(group, Group):
        values["group"] = group.number  # groups are told once
    if isinstance(event, OpEntry):
        values |= {"name": event.name, "kind": event.kind_label, "status": event.status_label}
    return values


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, RecordedFrame):
        return value._asdict()
    if isinstance(value, Enum):
        return value.name.lower()
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value
