"""What checks say where the ranks are on several hosts: of our own groups, and of torch's on gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.net.test_hosts import await_line, failures, kill_rank, output, start
from tests.support.network import Network

pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.usefixtures("can_make_hosts")]

#: All come twice; then some do not, or not any more.
MONITORED = """
import os, sys, time
from datetime import timedelta
import distdbg as dist

dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
late = {int(each) for each in sys.argv[1].split(",") if each}
for _ in range(2):
    dist.monitored_barrier(timeout=timedelta(seconds=60))
print("ready", flush=True)
if rank in late:
    told = [f"{sys.argv[2]}/told{each}" for each in range(world) if each not in late]
    while not all(map(os.path.exists, told)):
        time.sleep(0.01)  # a file announces nothing
    print("late", flush=True)
else:
    limit = timedelta(seconds=float(sys.argv[3]))
    try:
        while True:
            dist.monitored_barrier(timeout=limit)
    except dist.DistError as error:
        print(type(error).__name__, 0, error, flush=True)
    open(f"{sys.argv[2]}/told{rank}", "w").close()
"""


@pytest.fixture
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    with Network(getattr(request, "param", 3), str(tmp_path)) as made:
        yield made


@pytest.mark.parametrize("late", [(5,), (2, 3), (1, 4)])
def test_monitored_barrier_names_who_did_not_come_and_the_host(
    network: Network, tmp_path: Path, late: tuple[int, ...]
) -> None:
    """The last rank of a host, a whole host, and ranks of two hosts."""
    ranks = start(network, MONITORED, ",".join(map(str, late)), tmp_path, 5)
    for process in ranks:
        await_line(process, "ready")
    for rank, process in enumerate(ranks):
        text = output(process)
        if rank in late:
            assert text == "late\n"
            continue
        assert text.startswith("OpTimeout"), text
        for each in late:
            assert f"rank {each} on host node{each // 2}" in text, text
        for other in set(range(6)) - set(late):
            assert f"rank {other} on host" not in text, text


def test_monitored_barrier_names_a_rank_that_was_killed(network: Network, tmp_path: Path) -> None:
    ranks = start(network, MONITORED, "", tmp_path, 20)
    for process in ranks:
        await_line(process, "ready")
    kill_rank(network, 4)
    for kind, _, text in failures(ranks[:4] + ranks[5:]):
        assert kind in ("PeerLost", "OpTimeout")
        assert "rank 4 on host node2" in text, text


#: Knows torch only, and is watched: right ops, one that differs, one that a rank does not make.
ON_GLOO = """
import time
from datetime import timedelta
from distdbg.torch_bridge.hook import install

install()
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.ones(4)
dist.all_reduce(x)
assert x.tolist() == [world] * 4
dist.monitored_barrier(timeout=timedelta(seconds=60))
print("ready", flush=True)
try:
    dist.all_reduce(torch.ones(4 + rank // 3))
except RuntimeError as error:
    print(type(error).__name__, str(error).splitlines()[0], flush=True)
    print("end", flush=True)
try:
    if rank != 2:
        dist.monitored_barrier(timeout=timedelta(seconds=3))
except RuntimeError as error:
    print(type(error).__name__, error, flush=True)
    print("end", flush=True)
time.sleep(600 if rank == 2 else 0)
"""


@pytest.mark.parametrize("network", [2], indirect=True)
def test_ops_of_torch_on_gloo_are_compared_between_hosts(network: Network) -> None:
    pytest.importorskip("torch")
    ranks = start(network, ON_GLOO, GLOO_SOCKET_IFNAME="t0", OMP_NUM_THREADS="1")
    for process in ranks:
        await_line(process, "ready")
    for rank, process in enumerate(ranks):
        first = "".join(lines_until(process, "end"))
        assert first.startswith("MismatchError all_reduce #2 on group 'world' differs"), first
        assert "float32[4] on ranks 0-2" in first, first
        assert "float32[5] on rank 3" in first, first
        if rank != 2:
            text = "".join(lines_until(process, "end"))
            assert text.startswith("OpTimeout"), text
            assert "rank 2 on host node1" in text, text


def lines_until(process: Popen[str], last: str) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line == last + "\n":
            return
        yield line
