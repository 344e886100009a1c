from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.agent.launcher_orders import Attempt, ReportedEnd, read_order
from distdbg.record.ends import RankEnd


def test_an_attempt_tells_where_and_who() -> None:
    line = json.dumps(
        {"order": "attempt", "number": 1, "folder": "/r/attempt_1", "ranks": {"2": 4711},
         "store": "tcp://n14:1/agents", "nodes": 2, "node_rank": 1, "addr": "10.0.0.1"}
    )  # fmt: skip
    assert read_order(line.encode()) == Attempt(
        number=1,
        folder=Path("/r/attempt_1"),
        pids={2: 4711},
        store="tcp://n14:1/agents",
        nodes=2,
        node_rank=1,
        addr="10.0.0.1",
    )


def test_an_end_is_a_line_of_the_run_folder() -> None:
    end = RankEnd(rank=3, pid=1, host="n14", ended_ns=1, wall_ns=2, cause="exited", exit_code=3)
    line = json.dumps({"order": "ended", **json.loads(end.to_json())})
    assert read_order(line.encode()) == ReportedEnd(end)


def test_an_order_of_a_later_version_is_passed_over() -> None:
    assert read_order(b'{"order":"dance"}') is None


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"[]", b"{}", b'{"order":"attempt"}', b'{"order":"attempt","number":"x","folder":""}',
     b'{"order":"attempt","number":0,"folder":"","ranks":7}', b'{"order":"ended"}', b"\xff"],
)  # fmt: skip
def test_what_is_no_order_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_order(line)
