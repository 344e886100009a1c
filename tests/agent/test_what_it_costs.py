"""How often the agent wakes up beside ranks that do nothing but ops; its CPU time: benchmarks/agent.py."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import Job

BUSY = """
end = time.monotonic() + 60
go_on = np.ones(1)
while go_on[0]:
    for _ in range(50):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    go_on[0] = time.monotonic() < end
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
"""
#: A tick ten times a second, and what a look at findings hands to threads and back.
MOST_PER_S = 30


def count_wakes(pid: int) -> int:
    """How often the threads of a process have waited for something."""
    statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(
        int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", s, re.MULTILINE)[0]) for s in statuses
    )


@pytest.mark.slow
def test_it_does_not_wake_up_more_often_for_ranks_that_are_busier(
    start_job: Callable[..., Job],
) -> None:
    job = start_job(BUSY, 4)
    with job.connect() as client:
        first = job.await_row(client, 3, lambda row: row["last_number"] > 100)
        pid: Any = client.hello["pid"]
        before, began = count_wakes(pid), time.monotonic()
        time.sleep(2)  # what is counted is what happens meanwhile
        wanted = first["last_number"] + 1000
        row = job.await_row(client, 3, lambda row: row["last_number"] > wanted)
        per_s = (count_wakes(pid) - before) / (time.monotonic() - began)
    assert row["last_number"] > wanted, "the ranks were not busy"
    assert per_s < MOST_PER_S
