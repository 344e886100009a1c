"""Writes the page of metrics for the reference: the tables of families.py, and what bounds them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from distdbg.diagnose.finding import FINDING_KINDS
from distdbg.export.metrics.bounds import (
    KINDS,
    MAX_LABEL_CHARACTERS,
    OTHER_KIND,
    most_series,
)
from distdbg.export.metrics.buckets import CLASSIC_SERIES, LE_EXPONENTS, LE_LABELS
from distdbg.export.metrics.families import (
    CHECKS,
    FAMILIES,
    LOST,
    MAX_DTYPES,
    MAX_GROUPS,
    MAX_WORDS,
    NO_DTYPE,
    OTHER_DTYPE,
    OTHER_GROUP,
    OUTCOMES,
    SIGNALS,
    MetricFamily,
    Scope,
)
from distdbg.record.format import BUCKET_COUNT
from distdbg.record.rank_state import RankState

_TITLES = {
    Scope.HOST: (
        "Of a host",
        "Each agent serves them for its host, with its ranks added up. What the ranks of a job have done is\n"
        "the sum over its hosts.",
    ),
    Scope.RANK: ("Of a rank", "Each agent serves them for each rank of its host."),
    Scope.JOB: (
        "Of the job",
        "The agent of the job's first host alone serves them, for all ranks: nothing is to be added up.",
    ),
}
#: Hosts, ranks of each, and the series of the job with one data type and with two; a test counts them.
MEASURED = (
    (1, 8, 1831, 1879),
    (1, 64, 2447, 2495),
    (16, 64, 15467, 16235),
    (128, 8, 33835, 39979),
)


def metrics_page() -> str:
    """What there is, how many series it may be, and how it is written."""
    tables = []
    for scope, (title, about) in _TITLES.items():
        some = [family for family in FAMILIES if family.scope is scope]
        tables += [f"## {title}", "", about, "", *_table(some), ""]
    parts = (_BEGIN, "\n".join(tables), _values(), _TOTALS, _series(), _buckets(), _OUTLETS)
    return "\n\n".join(part.strip() for part in parts) + "\n"


_BEGIN = """
# Metrics

A **job** runs as a number of **ranks**, processes that call **ops** together: collectives as `all_reduce`,
and messages. The **kind** of an op is what it is called, its **group** the ranks that it is for. Beside the
ranks of each host runs an **agent**, which [serves these metrics](../how-to/serve-metrics.md) when it is
asked to: from the records that the ranks write anyway, from what the kernel says of their processes, and
from its diagnosis. A rank serves nothing and knows nothing of it. Of runs that are over `distdbg exporter`
serves the same.

Every series has two labels besides those named here: `run`, the name of the run, which is another one each
time a job is started (`DISTDBG_RUN`, else made from the time), and `host`, the host whose agent serves it.
What is served once for a job has the `host` of the agent that speaks for it. Where Prometheus gives its
targets a label `run` or `host` of its own, that scrape job needs `honor_labels: true`, or these come as
`exported_run` and `exported_host`.

| question | look at |
|---|---|
| does it move? | `rate(distdbg_ops_total[1m])`; `distdbg_rank_since_progress_seconds` of the ranks that \
are up |
| is somebody dead, stuck, or waited for? | `distdbg_dead_ranks`, `distdbg_ranks`, `distdbg_findings`, \
`distdbg_rank_blamed` |
| who comes late? | `distdbg_rank_wait_seconds_total` with `cause="late_peer"`: who waits least makes \
the others wait |
| how fast is it? | `distdbg_op_duration_seconds`; the bandwidth [below](#what-rises) |
| are these numbers whole? | `distdbg_agent_hosts_missing`, `distdbg_recording_lost_total`, \
`distdbg_agent_export_failures_total` |

[Dashboards](../how-to/watch-with-grafana.md), recording rules and [alerts](../runbooks/index.md) that ask
for these are there.
"""

_TOTALS = """
## What rises

A counter of a record ends with its group, and a rank that is started again begins at 0. The totals that are
served do not fall for that: an agent counts what it finds at its first look, and from then on what is
added. It looks when it is asked, when the ranks are over, and while a rank makes group after group. A record
has 512 counters, and those of destroyed groups give way to others: `distdbg exporter`, which only looks when
it is asked, may miss some of a program that makes a group each step. An agent that is started again begins
with what is in the records then, so its counters may fall, once, as any counter may.

Histograms are sums over all hosts. The agent of the first host asks the others, each second at first and
later every ten, so what is told of them is a moment old, and the last moment of a job may be missing; a host
that is lost keeps what it has told. After that agent was started again there are none until all hosts have
answered, 12 seconds at most.

Times of ops are from the call to the end, also where the program goes on meanwhile (`async_op`). So a rank
with several ops in flight may have more than one second of them in a second.
`distdbg_rank_wait_seconds_total` counts ops that have not ended as well, once their rank has stood still for
a quarter of a second: in a hang a rank that waits has a second of `late_peer` in each second. All other
times are those of ops that ended.

`distdbg_bus_bytes_total` are the bytes that all ranks counted times the factor of nccl-tests for the kind
and the size of the group: 2 (n - 1) / n for all_reduce, (n - 1) / n for all_gather, reduce_scatter and
all_to_all, 1 for broadcast, reduce and recv, and for a group of one rank. Gather, scatter and barrier have
none, and a message counts where it is received: send has none. The transfer is added up over the ranks as
well, so the quotient is the bus bandwidth of one rank while data moves, in bytes per second, without the
time in which ranks wait for late ones:

```promql
sum by (run, kind, group) (rate(distdbg_bus_bytes_total[1m]))
  / sum by (run, kind, group) (rate(distdbg_transfer_seconds_total[1m]))
```
"""

_OUTLETS = """
## Formats

| who asks | gets |
|---|---|
| Prometheus | OpenMetrics 1.0 with exemplars: of each bucket of a duration the `trace_id` of the newest \
op, where the agent sends traces |
| Prometheus that takes native histograms | protobuf: native and classic, with exemplars |
| others | Prometheus' text, 0.0.4, without exemplars |

It takes them with `--enable-feature=native-histograms`, from 3.8 on with `scrape_native_histograms: true`
for the job, and then drops the classic ones of the same name, which the dashboards and rules ask for. To
have both, set `scrape_classic_histograms: true` for the job (from 2.45 on;
`always_scrape_classic_histograms` in 3). Exemplars are kept with `--enable-feature=exemplar-storage`.

## Where nobody scrapes

**A text file** for node_exporter's textfile collector: `distdbg_<run>@<host>.prom` in the folder that
`--metrics-file` or `DISTDBG_METRICS_FILE` names, which hosts may share. It is written every 15 seconds and
once more at the end, and stays until another job finds that it has been there for an hour. It appears whole
or not at all. Everybody on the host may read it (0644), since node_exporter is another user; close the
folder to those who should not.

**A Pushgateway**, for jobs that are over before anybody scrapes them. `--metrics-push` or
`DISTDBG_METRICS_PUSH` is its URL, with `user:password@` before the host where it asks for that. Each host
of a run replaces what it has pushed before; its metrics have `job="distdbg"`, `run` and `host`, which
Prometheus keeps if its job for the gateway has `honor_labels: true`. The gateway keeps the last push until
somebody deletes it, by a `DELETE` of `/metrics/job/distdbg/run/RUN/host/HOST`. No proxy is used, and no
redirect is followed.

Remote write is not supported. It would need a queue, retries and a codec of its own to bring the same
numbers to the same place as a gateway that is scraped, or as an OpenTelemetry collector, which gets them by
OTLP and can write remotely.
"""


def _table(some: Iterable[MetricFamily]) -> list[str]:
    lines = ["| name | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    for family in some:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(
            f"| `{family.name}` | {family.type} | {family.unit} | {labels} | {family.about} |"
        )
    return lines


def _values() -> str:
    return f"""
## Values of labels

| label | values |
|---|---|
| `group` | what the program calls the group (`group_desc`); see below |
| `kind` | {_words(sorted(KINDS))}, `{OTHER_KIND}` |
| `kind` of a finding, also of `distdbg_rank_blamed` | {_words(FINDING_KINDS)}; as in the [JSON of an \
analysis](analysis-json.md) |
| `rank` | the number of the rank, from 0 |
| `dtype` | as NumPy names it; `{NO_DTYPE}` for an op without one, and where it is not known |
| `cause` | `late_peer`: until the last rank had come; `transfer`: from then on |
| `state` | {_words(RankState)}; see [what they mean](agent-api.md) |
| `check` | {_words(CHECKS)} |
| `what` | {_words(LOST)}; see the [runbook](../runbooks/recording-lost.md) |
| `outcome` | {_words(OUTCOMES)} |
| `signal` | {_words(SIGNALS)} |

A rank that the launcher terminated, because another one failed or it was asked to stop, is `ended` whatever
its exit code, and is no dead rank. One that failed because of another, before the launcher terminated it, is
`failed` and counts.

All groups that a program calls `dp` are one label, whatever their sizes. The default group is `world`. A
group without a description is named by its size, `(8 ranks)`: its own name is a number, and the next group
has another. What a program cannot have said stands in parentheses.

What is known to be possible is 0 before it has happened, so that the first time is a rise. A label may be
any text in UTF-8; of one with more than {MAX_LABEL_CHARACTERS} characters the beginning is kept, with a
digest of the whole.
"""


def _series() -> str:
    rows = "\n".join(
        f"| {hosts * ranks:,} | {hosts} | {one:,} | {two:,} |"
        for hosts, ranks, one, two in MEASURED
    )
    of_8, first_of_8, of_64, first_of_64 = (
        f"{most_series(ranks, is_first=is_first):,}"
        for ranks in (8, 64)
        for is_first in (False, True)
    )
    return f"""
## How many series

No label grows with steps; each run brings series of its own, as `run` is another one. Ranks that call six
kinds of ops on four groups are, for the whole job:

| ranks | hosts | series, with one data type | with two |
|---|---|---|---|
{rows}

Whatever ranks do, there is a bound:

- {MAX_GROUPS} groups of a host, and as many of the job, have a label of their own: those that were met
  first. All others are counted as `{OTHER_GROUP}`.
- {MAX_DTYPES} data types of a kind and group; the others are `{OTHER_DTYPE}`.
- {MAX_WORDS} values of any label that others have a say in, as `check`.

So the agent of a host with 8 ranks serves at most {of_8} series, that of the first host {first_of_8}; with 64
ranks it is {of_64} and {first_of_64}. `distdbg_agent_series` says how many it is now.

What `distdbg exporter` and other exporters of runs serve is the same for each run; their `distdbg_agent_*`
and `distdbg_build_info` say of each run what is true of that one exporter, so they are not to be added up.
"""


def _buckets() -> str:
    low, high = LE_EXPONENTS[0], LE_EXPONENTS[-1]
    bounds = "\n".join(textwrap.wrap(" ".join(LE_LABELS), 90))
    return f"""
## Buckets

A record counts durations by powers of two of nanoseconds, {BUCKET_COUNT} of them.

**Classic** histograms have those from 2^{low} ns (1 us) to 2^{high} ns (275 s), so each is {CLASSIC_SERIES}
series; a percentile is interpolated within a factor of two.
`le` is exact:

```text
{bounds}
```

**Native** histograms have all {BUCKET_COUNT}, in schema 0. Its bounds are powers of two of a second, and
2^30 ns are 1.074 s: each bucket is told as the native one that holds most of it, which makes a percentile
up to 7 % too low. Sums and counts are exact in both.
"""


def _words(some: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in some)
