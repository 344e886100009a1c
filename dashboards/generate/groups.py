"""The Groups and kinds dashboard: durations, late arrivals, bandwidths and failures of ops."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from dashboards.generate.board import Row, board, choice
from dashboards.generate.links import GROUPS_UID
from dashboards.generate.look import RED, steps
from dashboards.generate.panels import Column, heat, lines, rows
from dashboards.generate.queries import GROUP, KIND, buckets, column, of, range_query, rate

LEGEND = "{{kind}} on {{group}}"


def groups() -> Dashboard:
    return board(
        GROUPS_UID,
        "distdbg / Groups and kinds",
        "Duration of ops by group and kind, late arrivals of ranks, and bandwidth.",
        [
            Row(9, [(12, _durations()), (12, _late_arrivals())]),
            Row(8, [(8, _p50()), (8, _p99()), (8, _late_p99())]),
            Row(8, [(8, _bus()), (8, _ops()), (8, _dtypes())]),
            Row(8, [(16, _table()), (8, _failures())]),
        ],
        [
            choice("group", "Group", "distdbg_ops_total"),
            choice("kind", "Kind", "distdbg_ops_total"),
        ],
    )


def _durations() -> Panel:
    return heat(
        "How long ops take",
        "Ops by how long they took, from the call to the end; a diamond is one op and leads to its trace.",
        buckets("distdbg_op_duration_seconds", GROUP, KIND),
    )


def _late_arrivals() -> Panel:
    return heat(
        "How long ranks wait for the last one",
        "Calls by how long their rank waited for the last rank of the op.",
        buckets("distdbg_op_late_arrival_seconds", GROUP, KIND),
    )


def _p50() -> Panel:
    return lines(
        "Duration, p50",
        "Half of the ops take longer than this.",
        "s",
        range_query(of("distdbg:op_duration_seconds:p50", GROUP, KIND), LEGEND),
        is_log=True,
    )


def _p99() -> Panel:
    return lines(
        "Duration, p99",
        "Only one op in 100 takes longer than this.",
        "s",
        range_query(of("distdbg:op_duration_seconds:p99", GROUP, KIND), LEGEND),
        is_log=True,
    )


def _late_p99() -> Panel:
    return lines(
        "Late arrival, p99",
        "Only one call in 100 waits longer than this for the last rank.",
        "s",
        range_query(of("distdbg:late_arrival_seconds:p99", GROUP, KIND), LEGEND),
        is_log=True,
    )


def _bus() -> Panel:
    return lines(
        "Bus bandwidth",
        "Bytes over the bus per second of transfer, as nccl-tests counts them.",
        "Bps",
        range_query(of("distdbg:bus_bandwidth:bytes_per_second", GROUP, KIND), LEGEND),
        is_log=True,
    )


def _ops() -> Panel:
    return lines(
        "Ops",
        "Ops that ended per second, as each rank counts its own calls.",
        "ops",
        range_query(of("distdbg:ops:rate", GROUP, KIND), LEGEND),
        is_log=True,
    )


def _dtypes() -> Panel:
    moved = rate("distdbg_op_bytes_total", GROUP, KIND)
    return lines(
        "Bytes by data type",
        "Bytes per second that ops moved in or out of ranks, by the type of their elements.",
        "Bps",
        range_query(f"sum by (dtype) ({moved})", "{{dtype}}"),
        is_stacked=True,
    )


def _table() -> Panel:
    by = "max by (kind, group)"
    names = (
        "distdbg:ops:rate",
        "distdbg:bytes:rate",
        "distdbg:op_duration_seconds:p50",
        "distdbg:op_duration_seconds:p99",
        "distdbg:late_arrival_seconds:p99",
        "distdbg:bus_bandwidth:bytes_per_second",
    )
    return rows(
        "Groups and kinds now",
        "Each kind of op on each group, at the end of the time range.",
        [column(f"{by} ({of(name, GROUP, KIND)})") for name in names],
        {
            "group": Column(name="Group"),
            "kind": Column(name="Kind"),
            "A": Column(name="Ops", unit="ops"),
            "B": Column(name="Bytes", unit="Bps"),
            "C": Column(name="p50", unit="s"),
            "D": Column(name="p99", unit="s"),
            "E": Column(name="Late arrival p99", unit="s"),
            "F": Column(name="Bus bandwidth", unit="Bps"),
        },
        sort_by="Bytes",
    )


def _failures() -> Panel:
    failed = of("distdbg_op_failures_total", GROUP, KIND)
    return lines(
        "Ops that failed",
        "Ops that ended with an error, since the agents started.",
        "suffix: ops",
        range_query(f"sum by (kind, group) ({failed}) > 0", LEGEND),
        thresholds=steps((1, RED)),
        decimals=0,
        no_value="none",
    )
