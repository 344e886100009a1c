"""Facts to metrics: one function per scope. Pure; `Accumulator` has taken the facts of the host before.

What is known to be possible is told as 0 before it has happened (states, findings, outcomes), so that a first
finding is a rise and not a new series, which no rate would see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from distdbg.diagnose.finding import FINDING_KINDS
from distdbg.export.metrics.bounds import FirstFew, clean, known_kind
from distdbg.export.metrics.buckets import CLASSIC_SERIES, bucket_of
from distdbg.export.metrics.families import (
    BY_NAME,
    FAMILIES,
    MAX_CAUSES,
    MAX_WORDS,
    OUTCOMES,
    SIGNALS,
    MetricType,
)
from distdbg.export.metrics.model import Exemplar, Histogram, Metrics, Sample, Samples
from distdbg.export.metrics.samples import (
    AgentFacts,
    Exemplars,
    HostFacts,
    JobFacts,
    RankSample,
)
from distdbg.export.metrics.totals import Accumulator
from distdbg.record.rank_state import RankState

_One = tuple[str, Sample | Histogram]
_NONE: Exemplars = {}


def collect(
    host: HostFacts,
    totals: Accumulator,
    job: JobFacts | None = None,
    exemplars: Exemplars = _NONE,
) -> Metrics:
    """Everything that an agent serves of a run; `job` only where it speaks for the whole job.

    Takes `host` into `totals` first; to have done so before costs a look at each row and changes nothing.
    """
    totals.take(host)
    found: dict[str, list[Sample | Histogram]] = {}
    for name, one in _all(host, totals, job, exemplars):
        found.setdefault(name, []).append(one)
    found["distdbg_agent_series"] = [Sample((), series(found))]
    families = []
    for family in FAMILIES:
        some = found.get(family.name)
        if some:
            samples = tuple(one for one in some if isinstance(one, Sample))
            histograms = tuple(one for one in some if isinstance(one, Histogram))
            families.append(Samples(family, samples, histograms))
    return Metrics(run=host.run, host=host.host, families=tuple(families))


def series(found: Mapping[str, Iterable[object]]) -> int:
    """How many series these are in classic text, the one that tells it included."""
    return 1 + sum(
        CLASSIC_SERIES if BY_NAME[name].type is MetricType.HISTOGRAM else 1
        for name, some in found.items()
        for _ in some
    )


def _all(
    host: HostFacts, totals: Accumulator, job: JobFacts | None, exemplars: Exemplars
) -> Iterator[_One]:
    yield from _of_ops(totals)
    if job is not None:
        yield from _of_job(job, exemplars)
    for rank in host.ranks:
        yield from _of_rank(rank, totals)
    yield from _of_host(host, totals)
    yield from _of_agent(host.agent)


def _of_ops(totals: Accumulator) -> Iterator[_One]:
    for (kind, group), op in totals.ops.items():
        for dtype, (ended, nbytes) in op.by_dtype.items():
            yield "distdbg_ops_total", Sample((kind, group, dtype), ended)
            yield "distdbg_op_bytes_total", Sample((kind, group, dtype), nbytes)
        yield "distdbg_op_failures_total", Sample((kind, group), op.failed)
        if op.bus_nbytes is not None:
            yield "distdbg_bus_bytes_total", Sample((kind, group), op.bus_nbytes)
        yield "distdbg_transfer_seconds_total", Sample((kind, group), op.transfer_ns / 1e9)


def _of_rank(rank: RankSample, totals: Accumulator) -> Iterator[_One]:
    number = str(rank.rank)
    labels = (number,)
    yield "distdbg_rank_up", Sample(labels, int(rank.is_up))
    yield "distdbg_rank_ops_in_flight", Sample(labels, rank.in_flight)
    since_s = 0.0 if rank.state.is_over else rank.since_progress_s
    yield "distdbg_rank_since_progress_seconds", Sample(labels, since_s)
    seqs: dict[str, int] = {}
    for group, seq in rank.seqs.items():
        label = totals.group(group)
        seqs[label] = max(seqs.get(label, 0), seq)
    for label, seq in seqs.items():
        yield "distdbg_rank_seq", Sample((number, label), seq)
    total = totals.rank(rank.rank)
    if total is not None:
        for cause, ns in (("late_peer", total.late_peer_ns), ("transfer", total.transfer_ns)):
            yield "distdbg_rank_wait_seconds_total", Sample((number, cause), ns / 1e9)
        if total.cpu_s is not None:
            yield "distdbg_rank_cpu_seconds_total", Sample(labels, total.cpu_s)
    if rank.rss_nbytes is not None:
        yield "distdbg_rank_resident_memory_bytes", Sample(labels, rank.rss_nbytes)


def _of_host(host: HostFacts, totals: Accumulator) -> Iterator[_One]:
    states = dict.fromkeys(RankState, 0)
    for rank in host.ranks:
        states[rank.state] += 1
    for state, count in states.items():
        yield "distdbg_ranks", Sample((state.value,), count)
    yield "distdbg_dead_ranks", Sample((), sum(rank.is_dead for rank in host.ranks))
    for check, count in totals.found.items():
        yield "distdbg_check_failures_total", Sample((check,), count)
    for what, count in totals.lost.items():
        yield "distdbg_recording_lost_total", Sample((what,), count)


def _of_agent(agent: AgentFacts) -> Iterator[_One]:
    yield "distdbg_build_info", Sample((clean(agent.version), clean(agent.python)), 1)
    yield "distdbg_agent_start_time_seconds", Sample((), agent.began_s)
    yield "distdbg_agent_cpu_seconds_total", Sample((), agent.cpu_s)
    if agent.rss_nbytes is not None:
        yield "distdbg_agent_resident_memory_bytes", Sample((), agent.rss_nbytes)
    yield "distdbg_agent_collect_seconds", Sample((), agent.collect_s)
    if agent.hosts_missing is not None:
        yield "distdbg_agent_hosts_missing", Sample((), agent.hosts_missing)
    for outcome, count in _few(OUTCOMES, agent.spans):
        yield "distdbg_agent_spans_total", Sample((outcome,), count)
    for signal, count in _few(SIGNALS, agent.failures):
        yield "distdbg_agent_export_failures_total", Sample((signal,), count)
    for signal, count in _few((), agent.queues):
        yield "distdbg_agent_queue_length", Sample((signal,), count)


def _of_job(job: JobFacts, exemplars: Exemplars) -> Iterator[_One]:
    for (kind, group), times in job.histograms.items():
        labels = (known_kind(kind), clean(group))
        newest = _newest(exemplars, kind, group)
        durations = Histogram(labels, times.duration_buckets, times.duration_ns, newest)
        yield "distdbg_op_duration_seconds", durations
        yield (
            "distdbg_op_late_arrival_seconds",
            Histogram(labels, times.wait_buckets, times.wait_ns),
        )
    for kind, count in _few(FINDING_KINDS, job.findings_now):
        yield "distdbg_findings", Sample((kind,), count)
    for kind, count in _few(FINDING_KINDS, job.findings_total):
        yield "distdbg_findings_made_total", Sample((kind,), count)
    for one in job.causes[:MAX_CAUSES]:
        words = (str(one.rank), clean(one.kind), clean(one.site), clean(one.waiting))
        yield "distdbg_rank_blamed", Sample(words, 1)
    yield "distdbg_restarts_total", Sample((), job.restarts)
    yield "distdbg_world_size", Sample((), job.world_size)
    yield "distdbg_clock_held", Sample((), int(job.is_clock_held))


def _newest(exemplars: Exemplars, kind: str, group: str) -> tuple[Exemplar, ...]:
    """The newest op of each bucket, the shortest first."""
    newest: dict[int, Exemplar] = {}
    for duration_ns, trace_id, wall_s in exemplars.get((kind, group), ()):
        at = bucket_of(duration_ns)
        if at not in newest or newest[at].wall_s <= wall_s:
            newest[at] = Exemplar(duration_ns, trace_id, wall_s)
    return tuple(newest[at] for at in sorted(newest))


def _few(known: Iterable[str], counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """What is known to be possible, with 0 where it has not been; then other words, and not too many."""
    reported = {str(word): 0 for word in known}
    first = FirstFew(MAX_WORDS, known=reported)
    for word in sorted(counts):
        label = first.of(clean(str(word)))
        reported[label] = reported.get(label, 0) + counts[word]
    yield from reported.items()
