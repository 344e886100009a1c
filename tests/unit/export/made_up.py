"""Facts of hosts that nobody has run, for tests of what is exported from them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.export.metrics.families import LOST
from distdbg.export.metrics.samples import AgentFacts, HostFacts, JobFacts, OpCount, RankSample
from distdbg.export.metrics.totals import Accumulator, JobHistograms
from distdbg.record.format import BUCKET_COUNT
from distdbg.record.rank_state import RankState

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier")
GROUPS = ("world", "dp", "tp", "pp")
AGENT = AgentFacts(
    version="0.1.0",
    python="3.11.2",
    began_s=1_763_784_000.5,
    cpu_s=1.5,
    rss_nbytes=50 << 20,
    collect_s=0.003,
    hosts_missing=0,
    queues={"traces": 3},
)


def buckets(**counts: int) -> tuple[int, ...]:
    """`buckets(b10=3)`: three in the bucket from 2**10 ns."""
    found = [0] * BUCKET_COUNT
    for name, count in counts.items():
        found[int(name[1:])] = count
    return tuple(found)


def count(kind: str = "all_reduce", group: str = "dp", **words: object) -> OpCount:
    made = {"group_size": 8, "ended": 4, "dtype": "float32", "nbytes": 4096, "duration_ns": 8000}
    made |= {"wait_ns": 3000, "duration_buckets": buckets(b10=4), "wait_buckets": buckets(b9=4)}
    return OpCount(kind=kind, group=group, **(made | words))  # type: ignore[arg-type]


def rank(number: int = 0, counters: Iterable[OpCount] | None = (), **words: object) -> RankSample:
    made = {"is_up": True, "state": RankState.RUNNING, "cpu_s": 2.0, "rss_nbytes": 1 << 30}
    rows = None if counters is None else tuple(counters)
    return RankSample(rank=number, counters=rows, **(made | words))  # type: ignore[arg-type]


def host(*ranks: RankSample, run: str = "0412", name: str = "n01") -> HostFacts:
    return HostFacts(run=run, host=name, ranks=ranks, agent=AGENT)


def large_host(
    first: int, ranks: int, dtypes: tuple[str, ...] = ("float32",), *, rounds: int = 1
) -> HostFacts:
    """Ranks that call six kinds on four groups with some data types."""
    times = tuple(i * rounds for i in range(BUCKET_COUNT))

    def rows() -> Iterable[OpCount]:
        for at, group in enumerate(GROUPS):
            for kind in KINDS:
                for dtype in dtypes:
                    yield count(
                        kind, group, dtype=dtype, instance=at, ended=sum(times), failed=0,
                        nbytes=(1 << 20) * rounds, duration_ns=10**9 * rounds, wait_ns=10**8 * rounds,
                        duration_buckets=times, wait_buckets=times,
                    )  # fmt: skip

    seqs = dict.fromkeys(GROUPS, 1000 * rounds)
    lost = dict.fromkeys(LOST, 0)
    return host(
        *(rank(first + i, rows(), seqs=seqs, lost=lost, cpu_s=2.0 * rounds) for i in range(ranks)),
        name=f"n{first:04d}",
    )


def job_of(totals: Iterable[Accumulator], **words: object) -> JobFacts:
    all_hosts = JobHistograms()
    for at, one in enumerate(totals):
        all_hosts.take(str(at), one.histograms())
    return JobFacts(histograms=all_hosts.sum(), **({"world_size": 8} | words))  # type: ignore[arg-type]
