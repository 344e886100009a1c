"""The Agents dashboard: cost of the agents, and lost data."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from dashboards.generate.board import Row, board, choice
from dashboards.generate.links import AGENT_UID
from dashboards.generate.look import BLUE, GREY, ORANGE, PURPLE, RED, steps
from dashboards.generate.panels import Column, lines, number, rows
from dashboards.generate.queries import column, of, or_zero, range_query, rate

HOST = 'host=~"$host"'


def agent() -> Dashboard:
    return board(
        AGENT_UID,
        "distdbg / Agents",
        "What the agents of a job cost, and whether numbers, spans or records are lost.",
        [
            Row(4, _numbers()),
            Row(8, [(8, _cpu()), (8, _memory()), (8, _collect())]),
            Row(8, [(8, _spans()), (8, _failures()), (8, _queue())]),
            Row(8, [(8, _series()), (8, _lost()), (8, _agents())]),
        ],
        [choice("host", "Host", "distdbg_build_info")],
    )


def _numbers() -> list[tuple[int, Panel]]:
    cpu = number(
        "CPU of the costliest agent",
        "CPUs used by the busiest agent of the job.",
        "percentunit",
        range_query(f"max({of('distdbg:agent_cpu:ratio', HOST)})", "CPU"),
        thresholds=steps((0.05, ORANGE), (0.2, RED)),
        decimals=1,
    )
    memory = number(
        "Memory of the largest agent",
        "Resident memory of the largest agent of the job.",
        "bytes",
        range_query(f"max({of('distdbg_agent_resident_memory_bytes', HOST)})", "memory"),
        thresholds=steps((512 * 2**20, ORANGE), (2 * 2**30, RED)),
        decimals=0,
    )
    series = number(
        "Series of the job",
        "Series that all agents of the job serve together.",
        "none",
        range_query(f"sum({of('distdbg_agent_series', HOST)})", "series"),
        thresholds=steps((60_000, ORANGE), base=BLUE),
    )
    missing = number(
        "Hosts missing",
        "Hosts of the job whose numbers are not in the sums for the job.",
        "none",
        range_query(f"max({of('distdbg_agent_hosts_missing')})", "hosts"),
        thresholds=steps((1, RED)),
    )
    lost = number(
        "Recording lost",
        "Entries that did not fit into the records since the agents started, all kinds together.",
        "none",
        range_query(or_zero(f"sum({of('distdbg_recording_lost_total', HOST)})"), "lost"),
        thresholds=steps((1, ORANGE)),
    )
    failed = number(
        "Exports that failed",
        "Failed exports since the agents started, all signals together.",
        "none",
        range_query(or_zero(f"sum({of('distdbg_agent_export_failures_total', HOST)})"), "failed"),
        thresholds=steps((1, ORANGE)),
    )
    return [(4, panel) for panel in (cpu, memory, series, missing, lost, failed)]


def _cpu() -> Panel:
    return lines(
        "CPU",
        "CPUs that the agent of each host uses.",
        "percentunit",
        range_query(of("distdbg:agent_cpu:ratio", HOST), "{{host}}"),
        thresholds=steps((0.05, ORANGE), (0.2, RED)),
    )


def _memory() -> Panel:
    return lines(
        "Memory",
        "Resident memory of the agent of each host.",
        "bytes",
        range_query(
            f"max by (host) ({of('distdbg_agent_resident_memory_bytes', HOST)})", "{{host}}"
        ),
    )


def _collect() -> Panel:
    return lines(
        "Time of a collection",
        "How long the agent of each host takes to put its numbers together.",
        "s",
        range_query(f"max by (host) ({of('distdbg_agent_collect_seconds', HOST)})", "{{host}}"),
        thresholds=steps((0.05, ORANGE), (0.5, RED)),
    )


def _spans() -> Panel:
    return lines(
        "Spans",
        "Spans per second by outcome: only sent ones reach the collector.",
        "ops",
        range_query(f"sum by (outcome) ({rate('distdbg_agent_spans_total', HOST)})", "{{outcome}}"),
        colors={
            "sent": BLUE,
            "unsampled": GREY,
            "dropped": ORANGE,
            "missed": PURPLE,
            "failed": RED,
        },
        is_stacked=True,
    )


def _failures() -> Panel:
    failed = rate("distdbg_agent_export_failures_total", HOST)
    return lines(
        "Failed exports",
        "Failed exports per second, by signal.",
        "ops",
        range_query(f"sum by (signal) ({failed})", "{{signal}}"),
        is_stacked=True,
    )


def _queue() -> Panel:
    return lines(
        "Queue",
        "Items waiting to be exported, by signal and host.",
        "suffix: items",
        range_query(
            f"max by (signal, host) ({of('distdbg_agent_queue_length', HOST)})",
            "{{signal}} on {{host}}",
        ),
        decimals=0,
    )


def _series() -> Panel:
    return lines(
        "Series",
        "Series that the agent of each host serves.",
        "suffix: series",
        range_query(f"max by (host) ({of('distdbg_agent_series', HOST)})", "{{host}}"),
        decimals=0,
    )


def _lost() -> Panel:
    return lines(
        "Recording lost, by what",
        "Entries that did not fit into the records since the agents started, by kind.",
        "suffix: lost",
        range_query(f"sum by (what) ({of('distdbg_recording_lost_total', HOST)})", "{{what}}"),
        is_stacked=True,
        decimals=0,
    )


def _agents() -> Panel:
    return rows(
        "Agents",
        "The agent of each host: its version, its Python, and its start time.",
        [
            column(
                f"1000 * max by (host) ({of('distdbg_agent_start_time_seconds', HOST)})"
                " * on (host) group_right ()"
                f" max by (host, version, python) ({of('distdbg_build_info', HOST)})"
            )
        ],
        {
            "host": Column(name="Host"),
            "version": Column(name="Version"),
            "python": Column(name="Python"),
            "A": Column(name="Began", unit="dateTimeAsIso", width=170),
        },
    )
