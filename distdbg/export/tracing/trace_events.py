"""What tracing hears from the agent's loop, and what it makes of that and of the records. Pure.

`HostRecords` calls nobody back, so the same records and events make the same spans again. It reads records by
itself: what it has to look up of one depends on each row of it, and rows are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from distdbg.diagnose.finding import Finding
from distdbg.export.otel.model import LogData, SpanData
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.hosts.tail_sampling import KeptOp
from distdbg.record.ends import RankEnd


@dataclass(frozen=True, slots=True)
class RanksStarted:
    """The ranks are started, or started again: their records come in this folder."""

    folder: Path
    attempt: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class RankEnded:
    end: RankEnd


@dataclass(frozen=True, slots=True)
class FindingMade:
    """A finding that is new, with the name of its group."""

    finding: Finding
    group: str
    number: int
    """Counted over all findings of the run, from 1."""
    wall_ns: int


@dataclass(frozen=True, slots=True)
class OpsKept:
    """Other hosts keep these ops."""

    ops: Sequence[KeptOp]


TraceEvent = RanksStarted | RankEnded | FindingMade | OpsKept


class SampledOp(NamedTuple):
    """An op that was kept and has ended."""

    kind: str
    group: str
    """Its label."""
    took_ns: int
    trace_id: int
    ended_ns: int
    """Wall time."""


@dataclass(slots=True)
class Made:
    """What is to be sent, in this order; None: not of a rank."""

    spans: list[tuple[TracedRank | None, SpanData]] = field(default_factory=list)
    logs: list[tuple[TracedRank | None, LogData]] = field(default_factory=list)
    sampled: list[SampledOp] = field(default_factory=list)
