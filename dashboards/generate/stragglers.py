"""Who comes late, how late, and what it costs the others."""

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
        "Which ranks others wait for, on which hosts and groups, and how much time it takes.",
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
        f"The {MOST} ranks with the greatest share of the late arrivals: 1 is the last one each time.",
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
        "How much of what the others wait they wait for this rank, of those that come late.",
        "percentunit",
        range_query(f"topk({MOST}, {late} > 0.05)", "rank {{rank}}"),
        thresholds=SHARES,
        most=1,
        no_value="nobody comes late",
    )


def _table() -> Panel:
    return rows(
        "Ranks",
        "Who comes late and who waits; a rank that is late itself waits little.",
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
        "The share of time that ranks wait for late ones: the most, the mean and the least of all ranks.",
        "percentunit",
        range_query(f"max({waits})", "most"),
        range_query(f"avg({waits})", "mean"),
        range_query(f"min({waits})", "least"),
    )


def _heat() -> Panel:
    return heat(
        "How long ranks wait for the last one",
        "Calls by how long their rank waited until the last rank of the op had come.",
        buckets("distdbg_op_late_arrival_seconds", GROUP),
    )


def _late_p99() -> Panel:
    return lines(
        "Late arrival, p99",
        "Only in one call of 100 the last rank comes later than this after the one that waits.",
        "s",
        range_query(of("distdbg:late_arrival_seconds:p99", GROUP), "{{kind}} on {{group}}"),
        is_log=True,
    )


def _hosts() -> Panel:
    waited = rate("distdbg_rank_wait_seconds_total", 'cause="late_peer"')
    return lines(
        "Time lost by waiting, by host",
        "The share of time that ranks of a host wait for late ones: a slow host is the one that waits least.",
        "percentunit",
        range_query(f"avg by (host) ({waited})", "{{host}}"),
    )


def _cpu() -> Panel:
    return lines(
        "CPU by host",
        "CPUs that a rank of a host keeps busy, in the mean: a host that computes slower shows here.",
        "suffix: CPUs",
        range_query(f"avg by (host) ({rate('distdbg_rank_cpu_seconds_total')})", "{{host}}"),
        decimals=2,
    )
