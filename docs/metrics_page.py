"""Writes the page of metrics for the reference: the tables of families.py, and what bounds them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.export.metrics.bounds import KINDS, MOST_LABEL_CHARACTERS, most_series
from distdbg.export.metrics.buckets import CLASSIC_SERIES, LE_EXPONENTS, LE_LABELS
from distdbg.export.metrics.families import (
    CHECKS,
    FAMILIES,
    LOST,
    MOST_DTYPES,
    MOST_GROUPS,
    MOST_WORDS,
    NO_DTYPE,
    OTHER_GROUP,
    OUTCOMES,
    SIGNALS,
    Family,
    Scope,
)
from distdbg.record.rank_state import RankState

_TITLES = {
    Scope.HOST: ("Of a host", "Each agent serves them for its host; the ranks are added up."),
    Scope.RANK: ("Of a rank", "Each agent serves them for each rank of its host."),
    Scope.JOB: (
        "Of the job",
        "The agent of the job's first host alone serves them, for all ranks.",
    ),
}
#: Hosts and ranks of each, and the series of all together with one data type and with two. A test counts them.
MEASURED = (
    (1, 8, 1155, 1203),
    (1, 64, 1771, 1819),
    (16, 64, 14791, 15559),
    (128, 8, 33159, 39303),
)


def metrics_page() -> str:
    """What there is, how many series it may be, and how it is written."""
    lines = [
        "# Metrics",
        "",
        "All of it is read from the records; a rank serves nothing and knows nothing of it. Every series has the",
        "labels `run` and `host` besides those named here.",
        "",
    ]
    for scope, (title, about) in _TITLES.items():
        some = [family for family in FAMILIES if family.scope is scope]
        lines += [f"## {title}", "", about, "", *_table(some), ""]
    lines += [*_values(), "", *_totals(), "", *_series(), "", *_buckets(), "", *_formats(), ""]
    return "\n".join([*lines, *_outlets()]) + "\n"


def _table(some: Iterable[Family]) -> list[str]:
    lines = ["| name | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    for family in some:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(
            f"| `{family.name}` | {family.type} | {family.unit} | {labels} | {family.about} |"
        )
    return lines


def _values() -> list[str]:
    return [
        "## Values of labels",
        "",
        "| label | values |",
        "|---|---|",
        "| `group` | what the program calls the group (`group_desc`): all instances of `dp` are one label, whatever"
        " their sizes. The default group is `world`. A group without a description is named by its size,"
        " `(8 ranks)`: its own name is a number, and the next group has another |",
        f"| `kind` | {_words(sorted(KINDS))} |",
        f"| `dtype` | as NumPy names it; `{NO_DTYPE}` for an op without one, and where it is not known |",
        "| `cause` | `late_peer`: until the last rank had come; `transfer`: from then on |",
        f"| `state` | {_words(RankState)} |",
        f"| `check` | {_words(CHECKS)} |",
        f"| `what` | {_words(LOST)} |",
        "| `kind` of a finding | as in the [JSON of an analysis](analysis-json.md): `mismatch`, `dead rank` ... |",
        f"| `outcome` | {_words(OUTCOMES)} |",
        f"| `signal` | {_words(SIGNALS)} |",
        "",
        "What a program cannot have said stands in parentheses. What is known to be possible is 0 before it has",
        "happened, so that the first time is a rise. A value may be any text in UTF-8; of one longer than",
        f"{MOST_LABEL_CHARACTERS} characters the beginning is kept, with a digest of the whole.",
    ]


def _totals() -> list[str]:
    return [
        "## What rises",
        "",
        "A counter of a record ends with its group, and a rank that is started again begins at 0. The totals that",
        "are served do not fall for that: they are what was seen to be added, since the agent began. What a group",
        "counted after it was last looked at, and before it was destroyed, is not in them. An agent that is started",
        "again begins anew, as any counter may.",
        "",
        "`distdbg_bus_bytes_total` are the bytes that all ranks counted times the factor of nccl-tests for the kind",
        "and the size of the group: 2 (n - 1) / n for all_reduce, (n - 1) / n for all_gather, reduce_scatter and",
        "all_to_all, 1 for broadcast, reduce, send and recv. Gather, scatter and barrier have none. Divided by the",
        "transfer it is the bandwidth of one rank:",
        "",
        "```promql",
        "sum by (run, kind, group) (rate(distdbg_bus_bytes_total[1m]))",
        "  / sum by (run, kind, group) (rate(distdbg_transfer_seconds_total[1m]))",
        "```",
    ]


def _series() -> list[str]:
    rows = [
        f"| {hosts * ranks:,} | {hosts} | {one:,} | {two:,} |"
        for hosts, ranks, one, two in MEASURED
    ]
    return [
        "## How many series",
        "",
        "No label grows with steps. Ranks that call six kinds of ops on four groups are, for the whole job:",
        "",
        "| ranks | hosts | series, with one data type | with two |",
        "|---|---|---|---|",
        *rows,
        "",
        "Whatever ranks do, there is a bound:",
        "",
        f"- {MOST_GROUPS} groups of a host, and as many of the job, have a label of their own: those that were met first.",
        f"  All others are counted as `{OTHER_GROUP}`.",
        f"- {MOST_DTYPES} data types of a kind and group; the others are `(other)`.",
        f"- {MOST_WORDS} values of any label of which others have a say, as `check`.",
        "",
        f"So the agent of a host with 8 ranks serves at most {most_series(8, is_first=False):,} series, that of the first host",
        f"{most_series(8, is_first=True):,}; with 64 ranks it is {most_series(64, is_first=False):,} and"
        f" {most_series(64, is_first=True):,}. `distdbg_agent_series` says how many",
        "it is now.",
    ]


def _buckets() -> list[str]:
    return [
        "## Buckets",
        "",
        "A record counts durations by powers of two of nanoseconds, 40 of them.",
        "",
        f"**Classic** histograms have every second one, from 2^{LE_EXPONENTS[0]} ns (1 us) to 2^{LE_EXPONENTS[-1]} ns (275 s), so that",
        f"each is {CLASSIC_SERIES} series and not {CLASSIC_SERIES + 25}. A percentile is interpolated within a factor of four. `le` is exact:",
        "",
        "```text",
        *_wrapped(LE_LABELS),
        "```",
        "",
        "**Native** histograms (protobuf) have all 40, in schema 0. Its bounds are powers of two of a second, and",
        "2^30 ns are 1.074 s: each bucket is told as the native one that holds most of it, which makes percentiles up to",
        "7 % too low. Sums and counts are exact in both.",
    ]


def _wrapped(words: Iterable[str]) -> list[str]:
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 90:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _formats() -> list[str]:
    return [
        "## Formats",
        "",
        "| who asks | gets |",
        "|---|---|",
        "| Prometheus | OpenMetrics 1.0, with exemplars: the newest op with a trace in each bucket of a duration, by"
        " its `trace_id` |",
        "| Prometheus with `--enable-feature=native-histograms` | protobuf: native histograms, classic ones, exemplars |",
        "| others | Prometheus' text, 0.0.4; no exemplars |",
        "",
        "A Prometheus that takes native histograms drops the classic ones of the same name, which the dashboards and",
        "rules here ask for. Set `scrape_classic_histograms: true` for the job (from 2.45 on;",
        "`always_scrape_classic_histograms` in 3) to have both. Exemplars are kept with",
        "`--enable-feature=exemplar-storage`.",
    ]


def _outlets() -> list[str]:
    return [
        "## For who is not scraped",
        "",
        "**A text file** for node_exporter's textfile collector, `distdbg_<run>.prom` in the folder that",
        "`DISTDBG_METRICS_FILE` names. It appears whole or not at all. Everybody on the host may read it (0644), since",
        "node_exporter is another user; close the folder to those who should not.",
        "",
        "**A Pushgateway**, for jobs that are over before anybody scrapes them: `DISTDBG_METRICS_PUSH` is its URL, with",
        "`user:password@` before the host where it asks for that. Each host of a run replaces what it has pushed before;",
        'its metrics have `job="distdbg"`, `run` and `host`. In Prometheus\' configuration the job of the gateway needs',
        "`honor_labels: true`. The gateway keeps the last push until somebody deletes it: a `DELETE` of",
        "`/metrics/job/distdbg/run/RUN/host/HOST`. No proxy is used.",
        "",
        "Remote write is not supported. It would need a queue, retries and a codec of its own to bring the same numbers",
        "to the same place as a gateway that is scraped, or as an OpenTelemetry collector, which gets them by OTLP and",
        "can write remotely.",
    ]


def _words(some: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in some)
