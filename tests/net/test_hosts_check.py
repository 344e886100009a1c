"""What checks say where the ranks are on several hosts: of our own groups, and of torch's on gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.testing.network import Network
from tests.net.test_hosts import await_line, failures, kill_rank, output, start

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
