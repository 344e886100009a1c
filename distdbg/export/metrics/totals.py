"""Totals that only rise, from counters that come and go.

A record's counter ends with its group, and a rank that is started again begins at 0. So what is added
to a total is never a counter but how much it has risen since it was last seen, in the same life of the
rank and the same group:

    seen now         added
    more             the difference
    less             all of it: it has begun anew
    nothing          nothing; should it be there again, it goes on from where it was seen last

The times of a row are written one after the other while it is read, so a difference of two of them may
look smaller than a moment ago; what is told never falls. What a group counted between the last look and
its end is lost with it; the more often somebody looks, the less that is.

An op in flight is in no counter, and in a hang it is all there is. So the time that a rank has been in ops
is that of its counters and of what lasts. When such an op ends, its time goes from the one to the other;
should it be in neither for a moment, what is told stays where it is.

One thread at a time; nothing here is locked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distdbg.diagnose.bandwidth import bus_factor
from distdbg.export.metrics.bounds import FirstFew, clean, known_kind
from distdbg.export.metrics.families import (
    CHECKS,
    LOST,
    MAX_DTYPES,
    MAX_GROUPS,
    MAX_WORDS,
    NO_DTYPE,
    OTHER_DTYPE,
    OTHER_GROUP,
)
from distdbg.export.metrics.samples import HistogramFacts, HostFacts, OpCount, RankSample
from distdbg.record.format import BUCKET_COUNT

#: Rows of a rank that were not there at the last look and are remembered, should they come again.
_MAX_GONE: Final = 64
#: Only one rank of these has the side with all parts, so their bytes are no bus bytes.
_ROOTED: Final = frozenset(("gather", "scatter"))
_NO_BUCKETS: Final = (0,) * BUCKET_COUNT

_NOTHING: Final = HistogramFacts(
    duration_buckets=_NO_BUCKETS, duration_ns=0, wait_buckets=_NO_BUCKETS, wait_ns=0, count=0
)
Histograms = Mapping[tuple[str, str], HistogramFacts]

#: What a row of a record is distinguished by: the group's number, the kind, the data type, the group's
#: label.
_RowKey = tuple[int, str, str, str]


@dataclass(slots=True)
class OpTotal:
    """Ops of one kind on the groups of one label, over the ranks of a host."""

    failed: int = 0
    duration_ns: int = 0
    wait_ns: int = 0
    bus_nbytes: float | None = None
    """None: this kind has no bus bandwidth."""
    by_dtype: dict[str, list[int]] = field(default_factory=dict)
    """Ops that ended, and their bytes."""
    transfer_ns: int = 0
    """The most that duration without wait has been."""


class RankTotal(NamedTuple):
    """One rank, over all its lives."""

    late_peer_ns: int
    transfer_ns: int
    cpu_s: float | None


class Accumulator:
    """What the ranks of one host have done, group after group and life after life.

    The first look counts whole what it finds, as all of it was done by this job.
    """

    def __init__(self, *, most_groups: int = MAX_GROUPS, most_dtypes: int = MAX_DTYPES) -> None:
        self.ops: dict[tuple[str, str], OpTotal] = {}
        """By kind and label of the group."""
        self.found = dict.fromkeys(CHECKS, 0)
        """By check."""
        self.lost = dict.fromkeys(LOST, 0)
        """By what it was."""
        self._most_dtypes = most_dtypes
        self._groups = FirstFew(most_groups, OTHER_GROUP)
        self._dtypes: dict[tuple[str, str], FirstFew] = {}
        self._words = {
            "found": FirstFew(MAX_WORDS, known=CHECKS),
            "lost": FirstFew(MAX_WORDS, known=LOST),
        }
        self._ranks: dict[int, _Rank] = {}
        self._ended: dict[tuple[str, str], HistogramFacts] = {}

    def take(self, facts: HostFacts) -> None:
        """Add what has come since the last time."""
        for rank in facts.ranks:
            self._take_rank(rank)
        for total in self.ops.values():
            total.transfer_ns = max(total.transfer_ns, total.duration_ns - total.wait_ns)

    def group(self, label: str) -> str:
        """The label as it is served: itself, or that of all others beyond the most."""
        return self._groups.of(clean(label))

    def rank(self, rank: int) -> RankTotal | None:
        """What one rank has come to; None where it was never seen."""
        known = self._ranks.get(rank)
        return None if known is None else known.total()

    def histograms(self) -> dict[tuple[str, str], HistogramFacts]:
        """The times of all ops by kind and label of the group."""
        parts: dict[tuple[str, str], list[OpCount]] = {}
        for rank in self._ranks.values():
            for place in rank.places.values():
                parts.setdefault(place.key, []).append(place.row)
        found = {}
        for key in {**self._ended, **parts}:
            rows = parts.get(key, [])
            now = HistogramFacts(
                duration_buckets=_sum([row.duration_buckets for row in rows]),
                duration_ns=sum(row.duration_ns for row in rows),
                wait_buckets=_sum([row.wait_buckets for row in rows]),
                wait_ns=sum(map(_wait_ns, rows)),
                count=sum(row.ended for row in rows),
            )
            ended = self._ended.get(key)
            found[key] = now if ended is None else _add_facts([ended, now])
        return found

    # ----------------------------------------------------------------------------- one rank

    def _take_rank(self, facts: RankSample) -> None:
        rank = self._ranks.get(facts.rank)
        if rank is None:
            rank = self._ranks[facts.rank] = _Rank(life=facts.life)
        if rank.life != facts.life:
            for ended in rank.places.values():
                self._end(ended)
            rank.begin_anew(facts.life)
        if facts.cpu_s is not None:
            rank.on_cpu(facts.cpu_s)
        for name, now in (("found", facts.found), ("lost", facts.lost)):
            self._take_words(name, rank, now)
        if facts.counters is None:
            return
        rank.lasting_ns = facts.lasting_ns
        places = rank.places
        for row in facts.counters:
            named = (row.instance, row.kind, row.dtype, row.group)
            place = places.get(named)
            if place is None:
                place = places[named] = self._place(row)
                self._add(rank, place, row, None)
                continue
            places.move_to_end(named)
            old = place.row
            if _has_fallen(row, old):
                self._end(place)
                self._add(rank, place, row, None)
            elif row is not old:
                self._add(rank, place, row, old)
        # Those of this look are at the end.
        while len(places) > len(facts.counters) + _MAX_GONE:
            self._end(places.popitem(last=False)[1])

    def _place(self, row: OpCount) -> _Place:
        key = (known_kind(row.kind), self.group(row.group))
        factor = None if key[0] in _ROOTED else bus_factor(key[0], row.group_size)
        total = self.ops.get(key)
        if total is None:
            total = self.ops[key] = OpTotal(bus_nbytes=None if factor is None else 0.0)
            self._dtypes[key] = FirstFew(self._most_dtypes, OTHER_DTYPE)
        dtype = self._dtypes[key].of(clean(row.dtype)) if row.dtype else NO_DTYPE
        return _Place(row, key, total, total.by_dtype.setdefault(dtype, [0, 0]), factor)

    def _add(self, rank: _Rank, place: _Place, row: OpCount, old: OpCount | None) -> None:
        """What is in the row beyond what was there."""
        place.row = row
        ended, nbytes, failed = row.ended, row.nbytes, row.failed
        duration_ns, wait_ns = row.duration_ns, min(row.wait_ns, row.duration_ns)
        if old is not None:
            ended -= old.ended
            nbytes -= old.nbytes
            failed -= old.failed
            duration_ns -= old.duration_ns
            wait_ns -= min(old.wait_ns, old.duration_ns)
        place.counted[0] += ended
        place.counted[1] += nbytes
        total = place.total
        total.failed += failed
        total.duration_ns += duration_ns
        total.wait_ns += wait_ns
        if place.bus_factor is not None and total.bus_nbytes is not None:
            total.bus_nbytes += nbytes * place.bus_factor
        rank.duration_ns += duration_ns
        rank.wait_ns += wait_ns

    def _take_words(self, name: str, rank: _Rank, now: Mapping[str, int]) -> None:
        totals = self.found if name == "found" else self.lost
        last = rank.words.setdefault(name, {})
        reported: dict[str, int] = {}
        for word, count in now.items():
            label = self._words[name].of(clean(word))
            reported[label] = reported.get(label, 0) + count
        for word, count in reported.items():
            before = last.get(word, 0)
            totals[word] = totals.get(word, 0) + (count - before if count >= before else count)
            last[word] = count

    def _end(self, place: _Place) -> None:
        """Keep the times of a row that is not looked at any more."""
        row = place.row
        now = HistogramFacts(
            duration_buckets=row.duration_buckets,
            duration_ns=row.duration_ns,
            wait_buckets=row.wait_buckets,
            wait_ns=_wait_ns(row),
            count=row.ended,
        )
        ended = self._ended.get(place.key)
        self._ended[place.key] = _add_facts([now] if ended is None else [ended, now])


class JobHistograms:
    """The histograms of all hosts together; those of a host that does not answer stay as they were.

    An agent that is started again reads the records of the newest start of the ranks whole, and none of
    those before. So from another agent of a host

        of a newer start    all comes on top of what was told before
        of the same start   what was told of earlier starts, and of groups that it does not see any more,
                            is added to what it says
    """

    def __init__(self, *, most_groups: int = MAX_GROUPS) -> None:
        self._groups = FirstFew(most_groups, OTHER_GROUP)
        self._hosts: dict[str, _HostHistograms] = {}

    def take(self, host: str, histograms: Histograms, *, agent: str = "", attempt: int = 0) -> None:
        """What a host says now; `agent` tells its agents apart, `attempt` is the start it knows."""
        known = self._hosts.get(host)
        if known is None:
            self._hosts[host] = _HostHistograms(agent, attempt, histograms)
        else:
            known.take(agent, attempt, histograms)

    def sum(self) -> dict[tuple[str, str], HistogramFacts]:
        """The sums by kind and label of the group; labels beyond the most are together."""
        parts: dict[tuple[str, str], list[HistogramFacts]] = {}
        for host in self._hosts.values():
            for (kind, group), facts in (*host.gone.items(), *host.now.items()):
                key = known_kind(kind), self._groups.of(clean(group))
                parts.setdefault(key, []).append(facts)
        return {key: _add_facts(some) for key, some in parts.items()}


@dataclass(slots=True)
class _HostHistograms:
    """The histograms of one host, over all its agents."""

    agent: str
    attempt: int
    now: Histograms
    before: Histograms = field(default_factory=dict)
    """What was told before the newest start of the ranks."""
    gone: Histograms = field(default_factory=dict)
    """What is added, since this agent does not know of it."""

    def take(self, agent: str, attempt: int, histograms: Histograms) -> None:
        if agent == self.agent and attempt <= self.attempt:
            self.now = histograms
            return
        reported = {
            key: _add_facts([some[key] for some in (self.gone, self.now) if key in some])
            for key in {**self.gone, **self.now}
        }
        is_newer = attempt > self.attempt
        if is_newer:
            self.before = reported
        if agent != self.agent:
            self.gone = {
                key: _most(self.before.get(key, _NOTHING), _less(old, histograms.get(key)))
                for key, old in reported.items()
            }
            if is_newer:
                self.gone = reported
        self.agent, self.attempt, self.now = agent, attempt, histograms


@dataclass(slots=True)
class _Place:
    """A row of a record as it was seen last, and what it is added to."""

    row: OpCount
    key: tuple[str, str]
    total: OpTotal
    counted: list[int]
    bus_factor: float | None


@dataclass(slots=True)
class _Rank:
    life: tuple[int, int]
    places: OrderedDict[_RowKey, _Place] = field(default_factory=OrderedDict)
    """Those not seen for the longest time first."""
    duration_ns: int = 0
    wait_ns: int = 0
    lasting_ns: tuple[int, int] = (0, 0)
    """Times of ops that have not ended; those of a process that is gone never will."""
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    cpu_before_s: float = 0.0
    """CPU time of its processes that are gone."""
    cpu_s: float | None = None
    reported_ns: tuple[int, int] = (0, 0)

    def begin_anew(self, life: tuple[int, int]) -> None:
        self.life = life
        late_ns, transfer_ns, _ = self.total()
        self.wait_ns, self.duration_ns = late_ns, late_ns + transfer_ns
        self.lasting_ns = (0, 0)
        self.places.clear()
        self.words.clear()
        self.cpu_before_s += self.cpu_s or 0.0
        self.cpu_s = None if self.cpu_s is None else 0.0

    def on_cpu(self, cpu_s: float) -> None:
        if self.cpu_s is not None and cpu_s < self.cpu_s:
            # A process that is gone has none to tell; one that began anew has a life of its own.
            return
        self.cpu_s = cpu_s

    def total(self) -> RankTotal:
        late_ns = max(self.reported_ns[0], self.wait_ns + self.lasting_ns[0])
        transfer_ns = max(self.reported_ns[1], self.duration_ns - self.wait_ns + self.lasting_ns[1])
        self.reported_ns = (late_ns, transfer_ns)
        cpu_s = None if self.cpu_s is None else self.cpu_before_s + self.cpu_s
        return RankTotal(late_ns, transfer_ns, cpu_s)


def _has_fallen(row: OpCount, old: OpCount) -> bool:
    return (
        row.ended < old.ended
        or row.duration_ns < old.duration_ns
        or row.wait_ns < old.wait_ns
        or row.nbytes < old.nbytes
        or row.failed < old.failed
    )


def _wait_ns(row: OpCount) -> int:
    # Read while it is written, the wait may be an op ahead.
    return min(row.wait_ns, row.duration_ns)


def _sum(some: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    whole = [
        one if len(one) == BUCKET_COUNT else (*one, *_NO_BUCKETS)[:BUCKET_COUNT] for one in some
    ]
    return tuple(map(sum, zip(*whole, strict=True))) or _NO_BUCKETS


def _add_facts(some: Sequence[HistogramFacts]) -> HistogramFacts:
    return HistogramFacts(
        duration_buckets=_sum([one.duration_buckets for one in some]),
        duration_ns=sum(one.duration_ns for one in some),
        wait_buckets=_sum([one.wait_buckets for one in some]),
        wait_ns=sum(one.wait_ns for one in some),
        count=sum(one.count for one in some),
    )


def _most(one: HistogramFacts, other: HistogramFacts) -> HistogramFacts:
    return _join(max, one, other)


def _less(one: HistogramFacts, other: HistogramFacts | None) -> HistogramFacts:
    return one if other is None else _join(lambda a, b: max(0, a - b), one, other)


def _join(
    join: Callable[[int, int], int], one: HistogramFacts, other: HistogramFacts
) -> HistogramFacts:
    durations, waits = (
        tuple(map(join, _sum([mine]), _sum([theirs])))
        for mine, theirs in (
            (one.duration_buckets, other.duration_buckets),
            (one.wait_buckets, other.wait_buckets),
        )
    )
    return HistogramFacts(
        duration_buckets=durations,
        duration_ns=join(one.duration_ns, other.duration_ns),
        wait_buckets=waits,
        wait_ns=join(one.wait_ns, other.wait_ns),
        count=join(one.count, other.count),
    )
