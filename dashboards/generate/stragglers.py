"""The Stragglers dashboard: late ranks, how late they are, and what it costs."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from dashboards.generate.board import Row, board, choice
from dashboards.generate.links import STRAGGLERS_UID, TO_RANK
from dashboards.generate.look import ORANGE, RED, steps
from dashboards.generate.panels import Column, heat, lines, ranking, rows
from dashboards.generate.queries import (
    GROUP,
    LATE,
    buckets,
    column,
    instant_query,
    of,
    range_query,
    rate,
    with_host,
)

SHARES = steps((LATE, ORANGE), (0.8, RED))
#: Of more ranks the lines of one panel could not be told apart.
MOST = 10


def stragglers() -> Dashboard:
    return board(
        STRAGGLERS_UID,
        "distdbg / Stragglers",
        "Late ranks, their hosts and groups, and the time lost by waiting for them.",
        [
            Row(8, [(8, _who()), (16, _over_time())]),
            Row(8, [(12, _table()), (12, _waits())]),
            Row(8, [(12, _heat()), (12, _late_p99())]),
            Row(8, [(12, _hosts()), (12, _cpu())]),
        ],
        [choice("group", "Group", "distdbg_ops_total")],
    )


def _who() -> Panel:
    return ranking(
        "Who makes others wait",
        f"The {MOST} ranks with the largest share of late arrivals: 1 is a rank that is always last.",
        "percentunit",
        instant_query(
            f"sort_desc(topk({MOST}, {of('distdbg:rank_late_share:ratio')}))", "rank {{rank}}"
        ),
        thresholds=SHARES,
        most=1,
    )


def _over_time() -> Panel:
    late = of("distdbg:rank_late_share:ratio")
    return lines(
        "Share of late arrivals",
        "The part of the others' waiting that is for this rank, for ranks that are late.",
        "percentunit",
        range_query(f"topk({MOST}, {late} > 0.05)", "rank {{rank}}"),
        thresholds=SHARES,
        most=1,
        no_value="no rank is late",
    )


def _table() -> Panel:
    return rows(
        "Ranks",
        "Late ranks and waiting ranks; a rank that is late waits little itself.",
        [
            column(with_host(of("distdbg:rank_late_share:ratio"))),
            column(with_host(of("distdbg:rank_late_peer:ratio"))),
            column(with_host(of("distdbg:rank_transfer:ratio"))),
            column(f"max by (rank, host) ({rate('distdbg_rank_cpu_seconds_total')})"),
        ],
        {
            "rank": Column(name="Rank", width=80, link=TO_RANK),
            "host": Column(name="Host"),
            "A": Column(name="Late", unit="percentunit", decimals=0, thresholds=SHARES),
            "B": Column(name="Waits", unit="percentunit", decimals=0),
            "C": Column(name="Transfers", unit="percentunit", decimals=0),
            "D": Column(name="CPUs", unit="none", decimals=2),
        },
        sort_by="Late",
    )


def _waits() -> Panel:
    waits = of("distdbg:rank_late_peer:ratio")
    return lines(
        "Time lost by waiting",
        "The share of time that ranks wait for late ranks: maximum, mean and minimum.",
        "percentunit",
        range_query(f"max({waits})", "most"),
        range_query(f"avg({waits})", "mean"),
        range_query(f"min({waits})", "least"),
    )


def _heat() -> Panel:
    return heat(
        "How long ranks wait for the last one",
        "Calls by how long their rank waited for the last rank of the op.",
        buckets("distdbg_op_late_arrival_seconds", GROUP),
    )


def _late_p99() -> Panel:
    return lines(
        "Late arrival, p99",
        "Only one call in 100 waits longer than this for the last rank.",
        "s",
        range_query(of("distdbg:late_arrival_seconds:p99", GROUP), "{{kind}} on {{group}}"),
        is_log=True,
    )


def _hosts() -> Panel:
    waited = rate("distdbg_rank_wait_seconds_total", 'cause="late_peer"')
    return lines(
        "Time lost by waiting, by host",
        "The share of time that ranks of a host wait for late ranks: a slow host waits least.",
        "percentunit",
        range_query(f"avg by (host) ({waited})", "{{host}}"),
    )


def _cpu() -> Panel:
    return lines(
        "CPU by host",
        "Mean CPUs used by a rank of a host: shows hosts that compute slower.",
        "suffix: CPUs",
        range_query(f"avg by (host) ({rate('distdbg_rank_cpu_seconds_total')})", "{{host}}"),
        decimals=2,
    )
