"""Times that no clock has shown, at the edge of 64 bits and beyond: a trace is written all the same."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.export.reading import open_run
from distdbg.export.trace import chrome, perfetto
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.folders import record_name
from tests.support.record_builder import RecordBuilder

BEGAN_NS = 5_000_000_000
WALL_NS = 1_790_000_000 * 10**9
_EDGE = 2**63 - 1


def damaged_heartbeat(build: RecordBuilder) -> None:
    build.set_state(heartbeat_ns=_EDGE)


def damaged_exit(build: RecordBuilder) -> None:
    build.set_state(exit_ns=_EDGE - WALL_NS)


def damaged_op(build: RecordBuilder) -> None:
    build.issue("barrier", 1, at_ns=_EDGE - WALL_NS, thread=1)


def damaged_op_beyond(build: RecordBuilder) -> None:
    build.issue("barrier", 1, at_ns=_EDGE, thread=1)


def damaged_mark(build: RecordBuilder) -> None:
    build.mark("loss", 0.5, at_ns=_EDGE)


def damaged_span(build: RecordBuilder) -> None:
    build.end_span(build.begin_span("step", at_ns=_EDGE), at_ns=-_EDGE)


def damaged_finding(build: RecordBuilder) -> None:
    build.find('{"type": "Suspicion", "what": "odd"}', 1, at_ns=_EDGE)


def save(
    folder: Path,
    damage: Callable[[RecordBuilder], None] | None = None,
    *,
    wall_ns: int = WALL_NS,
    monotonic_ns: int = BEGAN_NS,
) -> None:
    for rank in range(2):
        build = RecordBuilder(
            rank=rank, world_size=2, ring_count=64, form_count=8, site_count=8,
            pid=4000 + rank, host="n01", boot_id="boot", run="r",
            wall_ns=wall_ns, monotonic_ns=monotonic_ns,
        )  # fmt: skip
        group = build.add_group("dp", ranks="0-1", size=2, rank=rank, at_ns=BEGAN_NS)
        for at in range(20):
            op = build.issue("barrier", group, at_ns=BEGAN_NS + 1_000 * at, thread=4000)
            build.start(op, after_ns=100)
            build.end(op, after_ns=200)
        build.issue("barrier", group, at_ns=BEGAN_NS + 50_000, thread=4000)
        build.set_state(heartbeat_ns=BEGAN_NS + 60_000)
        if damage is not None:
            damage(build)
        (folder / record_name(rank)).write_bytes(build.to_bytes())


def write_both(folder: Path) -> list[dict[str, object]]:
    """The events of the one that can be read here."""
    output = io.BytesIO()
    perfetto.write(open_run([folder]), output)
    assert output.getvalue()
    output = io.BytesIO()
    chrome.write(open_run([folder]), output)
    events: list[dict[str, object]] = json.loads(output.getvalue())["traceEvents"]
    return events


@pytest.mark.parametrize(
    "damage",
    [
        damaged_heartbeat,
        damaged_exit,
        damaged_op,
        damaged_op_beyond,
        damaged_mark,
        damaged_span,
        damaged_finding,
    ],
)
def test_a_time_at_the_edge_of_64_bits_or_beyond_costs_no_trace(
    tmp_path: Path, damage: Callable[[RecordBuilder], None]
) -> None:
    save(tmp_path, damage)
    events = write_both(tmp_path)
    assert sum(event.get("cat") == "barrier" for event in events) >= 42


@pytest.mark.parametrize("wall_ns", [_EDGE, -_EDGE, WALL_NS])
@pytest.mark.parametrize("monotonic_ns", [_EDGE, -_EDGE])
def test_clocks_at_the_edge_of_64_bits_cost_no_trace(
    tmp_path: Path, wall_ns: int, monotonic_ns: int
) -> None:
    save(tmp_path, wall_ns=wall_ns, monotonic_ns=monotonic_ns)
    assert write_both(tmp_path)


@pytest.mark.parametrize(
    ("ended_ns", "wall_ns"), [(_EDGE, -_EDGE), (-_EDGE, _EDGE), (_EDGE, WALL_NS)]
)
def test_an_end_at_the_edge_of_64_bits_costs_no_trace(
    tmp_path: Path, ended_ns: int, wall_ns: int
) -> None:
    save(tmp_path)
    write_end(
        tmp_path,
        RankEnd(
            rank=2,
            pid=1,
            host="n01",
            ended_ns=ended_ns,
            wall_ns=wall_ns,
            cause="exited",
            exit_code=1,
        ),
    )
    write_end(
        tmp_path,
        RankEnd(
            rank=1,
            pid=4001,
            host="n01",
            ended_ns=ended_ns,
            wall_ns=wall_ns,
            cause="exited",
            exit_code=1,
        ),
    )
    assert write_both(tmp_path)
