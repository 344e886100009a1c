"""What metrics are made from: plain values, which whoever reads the records fills in.

All counts are as the record has them now. A counter of a record begins at 0 with its group and goes
when the group is closed; `totals.py` makes of it what only rises. Groups are named by `group_label` of
`bounds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distdbg.record.rank_state import RankState

#: By kind and label of the group: its newest ops that have a trace, as (duration_ns, trace_id, wall_s).
#: The trace id is 32 digits of base 16, the time is when the op ended, in seconds since 1970. In any
#: order.
Exemplars = Mapping[tuple[str, str], Sequence[tuple[int, str, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCount:
    """One row of a record's counters: ops of a kind and data type on one group, as one rank called them."""

    group: str
    """Its label: `group_label(group.desc, group.name, group.size)` of the record's `Group`."""
    group_size: int
    kind: str
    dtype: str = ""
    """'' where the op has none or it is not known."""
    ended: int
    failed: int = 0
    nbytes: int = 0
    duration_ns: int = 0
    wait_ns: int = 0
    longest_ns: int = 0
    duration_buckets: tuple[int, ...] = ()
    """Bucket i: from 2**i below 2**(i+1) nanoseconds, the first with 0, the last one open."""
    wait_buckets: tuple[int, ...] = ()
    instance: int = 0
    """`Counter.group`: the number of the group in the record, which tells groups of one label apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """One rank of this host. What is not known of it is None; it then has no sample, or keeps its last."""

    rank: int
    is_up: bool
    is_dead: bool = False
    """It died or failed, and the launcher had not asked it to end."""
    state: RankState
    in_flight: int = 0
    lasting_ns: tuple[int, int] = (0, 0)
    """Of the ops in flight, as far as they are known: the time until their last rank came, or until now, and
    the time since it came. `counters` were read before: what is in them is not in this."""
    since_progress_s: float = 0.0
    seqs: Mapping[str, int] = field(default_factory=dict)
    """By label of the open groups: the collective called last; the most of groups with one label."""
    cpu_s: float | None = None
    rss_nbytes: int | None = None
    counters: Sequence[OpCount] | None = None
    """All rows; None: the record could not be read just now."""
    found: Mapping[str, int] = field(default_factory=dict)
    """What the check found in this life of the rank, by check."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """What its record had no room for, by what it was."""
    life: tuple[int, int] = (0, 0)
    """The attempt and the process: another one has counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """The agent, or the exporter that stands in for it."""

    version: str
    python: str
    began_s: float
    """In seconds since 1970."""
    cpu_s: float = 0.0
    rss_nbytes: int | None = None
    collect_s: float = 0.0
    hosts_missing: int | None = None
    """None where this agent does not add up for the job."""
    spans: Mapping[str, int] = field(default_factory=dict)
    """By outcome."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """By signal."""
    queues: Mapping[str, int] = field(default_factory=dict)
    """By signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """All that is known on one host of one run."""

    run: str
    host: str
    ranks: tuple[RankSample, ...]
    agent: AgentFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramFacts:
    """The times of ops of one kind on one group, of ranks and groups that are gone as well."""

    duration_buckets: tuple[int, ...]
    duration_ns: int
    wait_buckets: tuple[int, ...]
    wait_ns: int
    count: int


class CausingRank(NamedTuple):
    """A rank that is the cause of what is wrong."""

    rank: int
    kind: str
    """The kind of the finding that is the root of the verdict."""
    site: str = ""
    """'train.py:88 (step)'."""
    waiting: str = ""
    """The ranks that wait for it: '0-2,4'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What the agent of the first host alone knows."""

    world_size: int
    restarts: int = 0
    findings_now: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    findings_total: Mapping[str, int] = field(default_factory=dict)
    causes: Sequence[CausingRank] = ()
    """The ranks that are the cause by the verdict that holds now."""
    is_clock_held: bool = False
    histograms: Mapping[tuple[str, str], HistogramFacts] = field(default_factory=dict)
    """By kind and label of the group: `JobHistograms.sum()`."""
