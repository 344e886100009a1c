"""The Ranks dashboard: progress, waits and resources of the chosen ranks."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from dashboards.generate.board import Row, board, choice
from dashboards.generate.links import RANKS_UID, TO_RANK
from dashboards.generate.look import BLUE, GREEN, GREY, ORANGE, RED, VICTIM, steps, words
from dashboards.generate.panels import Column, lines, rows, states
from dashboards.generate.queries import (
    GROUP,
    LATE,
    RANK,
    STILL_S,
    STUCK_S,
    behind,
    column,
    of,
    range_query,
    rate,
    with_host,
)

#: What the number of a rank in the panel of progress stands for.
PROGRESS = words(
    {
        0: ("gone", GREY),
        1: ("own code", GREEN),
        2: ("in an op", BLUE),
        3: (f"own code for {STILL_S} s", RED),
        4: (f"in an op for {STILL_S} s", VICTIM),
    }
)


def ranks() -> Dashboard:
    return board(
        RANKS_UID,
        "distdbg / Ranks",
        "Progress, waits and resources of one or more ranks.",
        [
            Row(8, [(24, _now())]),
            Row(9, [(24, _progress())]),
            Row(8, [(12, _since_progress()), (12, _behind())]),
            Row(8, [(8, _waits()), (8, _transfers()), (8, _late())]),
            Row(8, [(8, _cpu()), (8, _memory()), (8, _in_flight())]),
        ],
        [
            choice("rank", "Rank", "distdbg_rank_up"),
            choice("group", "Group", "distdbg_rank_seq"),
        ],
    )


def _now() -> Panel:
    by = "max by (rank, host)"
    return rows(
        "Ranks now",
        "The chosen ranks at the end of the time range.",
        [
            column(f"{by} ({of('distdbg_rank_up', RANK)})"),
            column(f"{by} ({of('distdbg_rank_since_progress_seconds', RANK)})"),
            column(f"{by} ({of('distdbg_rank_ops_in_flight', RANK)})"),
            column(f"{by} ({behind(RANK, GROUP)})"),
            column(with_host(of("distdbg:rank_late_share:ratio", RANK))),
            column(f"{by} ({rate('distdbg_rank_cpu_seconds_total', RANK)})"),
            column(f"{by} ({of('distdbg_rank_resident_memory_bytes', RANK)})"),
        ],
        {
            "rank": Column(name="Rank", width=80, link=TO_RANK),
            "host": Column(name="Host"),
            "A": Column(name="Running", width=90, words=words({0: ("no", RED), 1: ("yes", GREEN)})),
            "B": Column(
                name="Since progress",
                unit="s",
                decimals=1,
            ),
            "C": Column(name="Ops in flight", unit="none"),
            "D": Column(name="Ops behind", unit="none", thresholds=steps((1, ORANGE))),
            "E": Column(
                name="Late", unit="percentunit", decimals=0, thresholds=steps((LATE, ORANGE))
            ),
            "F": Column(name="CPUs", unit="none", decimals=2),
            "G": Column(name="Memory", unit="bytes", decimals=1),
        },
        sort_by="Since progress",
    )


def _progress() -> Panel:
    up = of("distdbg_rank_up", RANK)
    in_op = f"({of('distdbg_rank_ops_in_flight', RANK)} > bool 0)"
    still = f"({of('distdbg_rank_since_progress_seconds', RANK)} > bool {STILL_S})"
    number = f"{up} * (1 + {in_op} + 2 * {still})"
    return states(
        "Progress",
        "Whether a rank is in its own code or in an op, for a short or a long time, or is gone.",
        range_query(f"max by (rank) ({number})", "rank {{rank}}"),
        PROGRESS,
    )


def _since_progress() -> Panel:
    return lines(
        "Time since progress",
        "How long ago each rank began or ended an op.",
        "s",
        range_query(
            f"max by (rank) ({of('distdbg_rank_since_progress_seconds', RANK)})", "rank {{rank}}"
        ),
        thresholds=steps((STILL_S, ORANGE), (STUCK_S, RED)),
    )


def _behind() -> Panel:
    return lines(
        "Ops behind",
        "How many collectives fewer than the first a rank has called, on the group where it lags most.",
        "suffix: ops",
        range_query(f"max by (rank) ({behind(RANK, GROUP)})", "rank {{rank}}"),
        decimals=0,
    )


def _waits() -> Panel:
    return lines(
        "Waits for late ranks",
        "The share of time that a rank waits in ops for the last rank.",
        "percentunit",
        range_query(of("distdbg:rank_late_peer:ratio", RANK), "rank {{rank}}"),
    )


def _transfers() -> Panel:
    return lines(
        "Transfers",
        "The share of time that a rank is in transfers, after all ranks have arrived.",
        "percentunit",
        range_query(of("distdbg:rank_transfer:ratio", RANK), "rank {{rank}}"),
    )


def _late() -> Panel:
    return lines(
        "Share of late arrivals",
        "The part of the others' waiting that is for this rank: 1 is a rank that is always last.",
        "percentunit",
        range_query(of("distdbg:rank_late_share:ratio", RANK), "rank {{rank}}"),
        thresholds=steps((LATE, ORANGE)),
        most=1,
    )


def _cpu() -> Panel:
    return lines(
        "CPU",
        "CPUs used by the process of a rank.",
        "suffix: CPUs",
        range_query(
            f"max by (rank) ({rate('distdbg_rank_cpu_seconds_total', RANK)})", "rank {{rank}}"
        ),
        decimals=2,
    )


def _memory() -> Panel:
    return lines(
        "Memory",
        "Resident memory of the process of a rank.",
        "bytes",
        range_query(
            f"max by (rank) ({of('distdbg_rank_resident_memory_bytes', RANK)})", "rank {{rank}}"
        ),
    )


def _in_flight() -> Panel:
    return lines(
        "Ops in flight",
        "Ops that a rank has started and that have not ended.",
        "suffix: ops",
        range_query(f"max by (rank) ({of('distdbg_rank_ops_in_flight', RANK)})", "rank {{rank}}"),
        decimals=0,
    )
