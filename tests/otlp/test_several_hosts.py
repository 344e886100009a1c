"""Agents of several hosts send spans of one job: they fit together, though no agent asks another."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.testing.hosts import Hosts
from tests.otlp.collector import over_http, plain
from tests.otlp.conftest import variables

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

TRAIN = """
import numpy as np
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
x = np.ones(4)
for step in range(300):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=pairs[rank % 2])
if rank == 1:
    dist.send(x, 2, tag=7)
if rank == 2:
    dist.recv(x, 1, tag=7)
dist.destroy_process_group()
"""


def test_of_each_op_that_is_kept_all_hosts_send_all_ranks_and_one_sends_the_root(
    tmp_path: Path,
) -> None:
    with Hosts(tmp_path) as hosts, over_http() as (taken, port):
        sampling = {
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.2",
            "DISTDBG_OTLP_SPANS_PER_S": "10000",
            "OTEL_BSP_MAX_QUEUE_SIZE": "10000",
            "DISTDBG_RECORD_OPS": "4096",
        }
        flags = ["--nproc-per-node", "2", hosts.script(TRAIN)]
        both = [
            hosts.launch(n, *hosts.static(2, n), *flags, **variables(port, **sampling))
            for n in range(2)
        ]
        assert [launcher.wait() for launcher in both] == [0, 0]
        spans = taken.spans()
    traces: dict[bytes, list[tuple[dict[str, object], object]]] = {}
    for _, span in spans:
        values = plain(span.attributes)
        if values.get("distdbg.op.kind") == "all_reduce":
            traces.setdefault(span.trace_id, []).append((values, span))
    assert 100 < len(traces) < 260  # of 900, one in five
    for found in traces.values():
        ranks = [values["distdbg.rank"] for values, _ in found if values["distdbg.role"] == "rank"]
        roots = [span for values, span in found if values["distdbg.role"] == "root"]
        assert sorted(ranks) in ([0, 1, 2, 3], [0, 2], [1, 3])
        assert len(ranks) == found[0][0]["distdbg.group.size"]
        assert len(roots) == 1
    hosts_of = {values["distdbg.rank"]: values["host.name"] for values, _ in spans}
    assert hosts_of == {0: "127.0.0.2", 1: "127.0.0.2", 2: "127.0.0.3", 3: "127.0.0.3"}
    messages = [span for _, span in spans if span.name.startswith(("send", "recv"))]
    assert len({span.trace_id for span in messages}) <= 1
