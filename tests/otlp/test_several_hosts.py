"""Agents of several hosts send spans of one job: they fit together, though no agent asks another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.otlp.collector import over_http, plain
from tests.otlp.conftest import variables
from tests.support.hosts import Hosts

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


LATE = """
import os, sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
x = np.ones(4)
def late(ranks):
    if rank in ranks:
        time.sleep(0.6)
for step in range(5):
    dist.all_reduce(x)
late([2, 3])
dist.all_reduce(x)  # 6: the second host does not see that it is slow
late([0, 1])
dist.all_reduce(x)  # 7: nor does the first, which sends the root
dist.barrier()
late([1])
if rank == 1:
    dist.send(x, 2)
if rank == 2:
    dist.recv(x, 1)
dist.barrier()  # 9
for step in range(5):
    dist.all_reduce(x)
while rank < 2 and not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
late([0, 1])
dist.barrier()  # 15: there is no time left
dist.destroy_process_group()
"""


def test_what_is_slow_on_one_host_is_kept_on_all_of_them(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts, over_http() as (taken, port):
        asked = {"OTEL_TRACES_SAMPLER": "always_off", "DISTDBG_OTLP_SLOW_S": "0.4"}
        go = tmp_path / "go"
        flags = ["--nproc-per-node", "2", hosts.script(LATE), str(go)]
        both = [
            hosts.launch(n, *hosts.static(2, n), *flags, **variables(port, **asked))
            for n in range(2)
        ]
        # Hosts hear of what others keep while the job runs: it may not end before.
        kept = 3 * 5 + 2
        taken.until(lambda: len(taken.spans()) >= kept, f"{kept} spans are there", 60.0)
        go.touch()
        assert [launcher.wait() for launcher in both] == [0, 0]
        spans = [(plain(span.attributes), span) for _, span in taken.spans()]
    by_trace: dict[bytes, list[str]] = {}
    for values, span in spans:
        if values["distdbg.role"] != "finding":
            by_trace.setdefault(span.trace_id, []).append(span.name)

    def all_of(kind: str, seq: int) -> list[str]:
        return [f"{kind} #{seq} on world", *(f"{kind} rank {rank}" for rank in range(4))]

    found = sorted(map(sorted, by_trace.values()))
    # Of the last op the first host hears only if its agent is still there then.
    [last] = [one for one in found if one in (all_of("barrier", 15), all_of("barrier", 15)[3:])]
    found.remove(last)
    assert found == [
        all_of("all_reduce", 6),
        all_of("all_reduce", 7),
        all_of("barrier", 9),
        ["recv rank 2 from 1", "send rank 1 to 2"],
    ]
