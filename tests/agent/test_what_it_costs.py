"""The share of a core that the agent takes beside ranks that do nothing but ops."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

BUSY = """
end = time.monotonic() + 30
go_on = np.ones(1)
while go_on[0]:
    for _ in range(50):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    go_on[0] = time.monotonic() < end
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
"""


@pytest.mark.slow
def test_eight_busy_ranks_take_less_than_a_fiftieth_of_a_core(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(BUSY, 8)
    with job.connect() as client:
        job.await_row(client, 7, lambda row: row["last_number"] > 100, 20)
        before = client.ask("about")
        time.sleep(6)  # what is measured is what happens meanwhile
        after = client.ask("about")
    used = after["cpu_s"] - before["cpu_s"]
    assert used / (after["up_s"] - before["up_s"]) < 0.02, (before, after)
