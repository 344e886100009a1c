"""Ranks on several hosts, and what a network or a host can do to them."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired

import pytest

from tests.net.test_over_tcp import CONGESTION, PROGRAM
from tests.support.network import Network, NetworkHost

ROOT = Path(__file__).parents[2]
KEEPALIVE_S = 2.0

pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.usefixtures("can_make_hosts")]

#: Ops until one fails. A line for every error, with the seconds that the op took; then the last words.
LOOP = """
import os, sys, time
from datetime import timedelta
import numpy as np
import distdbg as dist

timeout_s, rest_s, size = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
dist.init_process_group(timeout=timedelta(seconds=timeout_s))
rank, world = dist.get_rank(), dist.get_world_size()
pair = dist.new_group([0, 1])
x = np.ones(size)
dist.all_reduce(x)
print("ready", flush=True)
if rest_s:
    time.sleep(rest_s)  # the host goes while the ranks are in no op
failed = ""
while not failed:
    began = time.monotonic()
    try:
        dist.all_reduce(x)
        x[:] = 1
    except dist.DistError as error:
        failed = f"{type(error).__name__} {time.monotonic() - began:.1f} {error}"
print(failed, flush=True)
if rank < 2:  # the other group goes on
    for _ in range(100):
        y = np.full(1000, rank)
        dist.all_reduce(y, group=pair)
        assert (y == 1).all()
    print("goes on", flush=True)
"""


@pytest.fixture
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    with Network(getattr(request, "param", 3), str(tmp_path)) as made:
        yield made


def start(
    network: Network, program: str, *arguments: object, each: int = 2, **env: str
) -> list[Popen[str]]:
    """Ranks in the order of the hosts, so many on each."""
    world = each * len(network.hosts)
    env = {"WORLD_SIZE": str(world), "DISTDBG_KEEPALIVE_S": str(KEEPALIVE_S), **env}
    return [
        start_one(network, rank, program, {**env, "RANK": str(rank)}, *arguments, each=each)
        for rank in range(world)
    ]


def start_one(
    network: Network,
    rank: int,
    program: str,
    env: dict[str, str],
    *arguments: object,
    each: int = 1,
) -> Popen[str]:
    return host_of(network, rank, each).start(
        [sys.executable, "-c", program, *map(str, arguments)],
        {**common(), "MASTER_ADDR": network.hosts[0].address, "MASTER_PORT": "29500", **env},
    )


def common() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "DISTDBG_TOKEN": "one"}


def host_of(network: Network, rank: int, each: int = 2) -> NetworkHost:
    return network.hosts[rank // each]


def await_line(process: Popen[str], line: str) -> None:
    assert process.stdout is not None
    got = process.stdout.readline()
    assert got == line + "\n", got + process.communicate(timeout=120)[1]


def output(process: Popen[str], timeout_s: float = 180) -> str:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"still there: {out}\n{err}")
    assert out, err
    return out


def failures(ranks: list[Popen[str]]) -> list[tuple[str, float, str]]:
    """(type, seconds, text) of what each rank said in the end."""
    found = []
    for process in ranks:
        match = re.match(r"(\w+) ([\d.]+) (.*)", output(process), re.DOTALL)
        assert match is not None
        found.append((match[1], float(match[2]), match[3]))
    return found


@pytest.mark.parametrize("network", [2, 3, 4], indirect=True)
def test_all_ops_of_all_sizes(network: Network) -> None:
    # One thread of this process carries all packets: beside other work it rests for more than KEEPALIVE_S.
    for process in start(network, PROGRAM, DISTDBG_KEEPALIVE_S="20"):
        assert output(process, 120) == "right\n"


@pytest.mark.parametrize("network", [2], indirect=True)
def test_links_to_far_hosts_control_congestion_as_the_system_does(network: Network) -> None:
    for way in network.ways.values():
        way.delay_s = 0.005
    for process in start(network, CONGESTION, each=1):
        found, of_system = output(process).split()
        assert found == of_system


def test_all_ops_while_packets_are_lost_and_late(network: Network) -> None:
    for way in network.ways.values():
        way.delay_s, way.loss = 0.002, 0.01
    program = PROGRAM.replace("50_000, 300_000", "50_000")
    for process in start(network, program, DISTDBG_KEEPALIVE_S="20"):
        assert output(process, 300) == "right\n"


@pytest.mark.parametrize(
    ("way", "rest_s"),
    [("crash", 0), ("cut", 4), ("deaf", 0), ("mute", 4), ("cut", 0), ("reset", 0), ("reset", 3)],
)
def test_a_host_that_is_gone_is_named(network: Network, way: str, rest_s: int) -> None:
    """Each way to be gone, within an op or between two; a cut, which is deaf and mute, in both."""
    ranks = start(network, LOOP, 60, rest_s, 1000)
    for process in ranks:
        await_line(process, "ready")
    began = time.monotonic()
    if way == "crash":
        network.hosts[2].crash()
    elif way == "cut":
        network.cut([2], [0, 1])
    elif way == "reset":
        for path in network.between([2], [0, 1]):
            path.is_reset = True
    else:
        for a in (0, 1):
            network.ways[(2, a) if way == "mute" else (a, 2)].is_blocked = True
    for rank, (kind, _, text) in enumerate(failures(ranks[:4])):
        assert kind == "PeerLost"
        how = "lost the connection: Connection reset by peer" if way == "reset" else ""
        assert re.match(rf"rank [45] on host node2 {how}", text), text
        assert text.endswith("goes on\n") == (rank < 2), text
    # The time of an op in flight when it happened, what the keep-alive takes, and the ops of the other group.
    assert time.monotonic() - began < rest_s + KEEPALIVE_S + 10


def kill_rank(network: Network, rank: int) -> None:
    """As the kernel would: out of memory, a crash."""
    [found] = [
        pid
        for pid in os.listdir("/proc")
        if pid.isdigit()
        and f"RANK={rank}\0".encode() in read_environ(pid)
        and os.readlink(f"/proc/{pid}/ns/pid")
        == os.readlink(f"/proc/{host_of(network, rank).pid}/ns/pid")
    ]
    os.kill(int(found), signal.SIGKILL)


def read_environ(pid: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


@pytest.mark.parametrize(("dead", "rest_s"), [(4, 0), (5, 3)])
def test_a_rank_that_is_killed_is_named(network: Network, dead: int, rest_s: int) -> None:
    """The first rank of its host within an op, the last one between two."""
    ranks = start(network, LOOP, 60, rest_s, 1000)
    for process in ranks:
        await_line(process, "ready")
    kill_rank(network, dead)
    for kind, _, text in failures(ranks[:dead] + ranks[dead + 1 :]):
        assert kind == "PeerLost"
        # Who shares its host and waits for it tells more than that its connection ended.
        how = r"died \(signal 9, SIGKILL\)|died: its connection was closed|lost the connection"
        assert re.match(rf"rank {dead} on host node2 ({how})", text), text


@pytest.mark.parametrize("network", [4], indirect=True)
def test_both_halves_of_a_partition_name_a_rank_of_the_other(network: Network) -> None:
    ranks = start(network, LOOP, 60, 0, 1000, each=1)
    for process in ranks:
        await_line(process, "ready")
    network.cut([0, 1], [2, 3])
    for rank, (kind, _, text) in enumerate(failures(ranks)):
        others = "[23]" if rank < 2 else "[01]"
        assert kind == "PeerLost"
        assert re.match(rf"rank ({others}) on host node\1 ", text), (rank, text)


def test_a_silent_host_does_not_outlast_the_timeout(network: Network) -> None:
    ranks = start(network, LOOP, 4, 0, 1000, DISTDBG_KEEPALIVE_S="600")
    for process in ranks:
        await_line(process, "ready")
    network.cut([2], [0, 1])
    for kind, seconds, text in failures(ranks):
        assert kind == "OpTimeout", text
        assert 3.9 < seconds < 30


def test_a_link_that_comes_back_in_time_loses_nothing(network: Network) -> None:
    ranks = start(network, LOOP, 12, 0, 1000, DISTDBG_KEEPALIVE_S="60")
    for process in ranks:
        await_line(process, "ready")
    for _ in range(3):
        ways = network.between([2], [0, 1])
        for way in ways:
            way.is_blocked = True
        time.sleep(0.7)  # how long the link is down is what is tried
        for way in ways:
            way.is_blocked = False
        time.sleep(0.7)  # how long the link is down is what is tried
    for process in ranks:
        assert process.poll() is None
    network.cut([2], [0, 1])
    for kind, _, text in failures(ranks):
        assert kind == "OpTimeout", text


LATE = """
import os, sys, time
import numpy as np
import distdbg as dist

dist.init_process_group()
group = dist.new_group()
late = {int(rank) for rank in sys.argv[1].split(",")}
x = np.ones(int(sys.argv[2]))
dist.all_reduce(x, group=group)
if dist.get_rank() in late:
    told = [f"{sys.argv[3]}/told{rank}" for rank in range(dist.get_world_size()) if rank not in late]
    while not all(map(os.path.exists, told)):
        time.sleep(0.01)  # a file announces nothing
    print("late", flush=True)
else:
    try:
        dist.all_reduce(x, group=group, timeout=10.0)
    except dist.OpTimeout as error:
        print(error.missing, error.details[0], flush=True)
    open(f"{sys.argv[3]}/told{dist.get_rank()}", "w").close()
"""


@pytest.mark.parametrize("network", [4], indirect=True)
@pytest.mark.parametrize(("late", "size"), [("0", 1_000_000), ("4,5", 10), ("3,6", 10)])
def test_a_timeout_names_just_the_ranks_that_did_not_come(
    network: Network, late: str, size: int, tmp_path: Path
) -> None:
    """Rank 0 in an op of many pieces, a whole host, and one of each of two hosts."""
    names = [int(rank) for rank in late.split(",")]
    for rank, process in enumerate(start(network, LATE, late, size, tmp_path)):
        text = output(process)
        if rank in names:
            assert text == "late\n"
        else:
            host = f"node{names[0] // 2}"
            place = f"rank {names[0]} on host {host} last called op #1 on this group"
            assert text.startswith(f"{names} {place}"), (rank, text)


#: Sums and messages of numbers that are known, until an op fails; whatever it wrote is looked at.
CHECKED = """
import sys
import numpy as np
import distdbg as dist

dist.init_process_group()
rank, world, size = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])
x = np.full(size, rank + 1.0)
dist.all_reduce(x)
dist.send(x, dst=rank + 1) if rank % 2 == 0 else dist.recv(x, src=rank - 1)
print("ready", flush=True)
for i in range(1_000_000):
    x = np.full(size, rank + 1.0 + i)
    try:
        if i % 2:
            dist.all_reduce(x)
            expected = world * (world + 1) / 2 + world * i
        elif rank % 2:
            dist.recv(x, src=rank - 1)
            expected = rank + 0.0 + i
        else:
            dist.send(x, dst=rank + 1)
            expected = rank + 1.0 + i
    except dist.DistError as error:
        link = getattr(error, "link", "")
        print(type(error).__name__, getattr(error, "sender", -1), getattr(error, "receiver", -1), link)
        print(error, flush=True)
        break
    if not (x == expected).all():
        print("wrong numbers", flush=True)
        break
"""


@pytest.mark.parametrize("network", [2], indirect=True)
@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_what_a_link_changes_is_found_and_the_link_is_named(network: Network, size: int) -> None:
    ranks = start(network, CHECKED, size, each=1, DISTDBG_LINK_CHECKSUM="1")
    for process in ranks:
        await_line(process, "ready")
    network.ways[0, 1].corruption = 0.05
    for process in ranks:
        first, text = output(process).split("\n", 1)
        kind, sender, receiver, link = first.split(" ", 3)
        assert (kind, sender, receiver) == ("LinkCorruptedError", "0", "1"), first + text
        assert re.fullmatch(r"10\.77\.0\.1:\d+ to 10\.77\.0\.2:\d+", link), link
        assert re.match(
            r"(all_reduce #\d+|send|recv) on group 'world' failed: a message from rank 0 on host node0 to "
            r"rank 1 on host node1 was changed on its way\n",
            text,
        ), text


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_group_is_not_made_over_such_a_link(network: Network) -> None:
    network.ways[0, 1].corruption = 1.0
    network.ways[0, 1].least_corrupted_nbytes = 2000  # those that measure the link
    program = """
import distdbg as dist
try:
    dist.init_process_group()
except dist.DistError as error:
    print(type(error).__name__, error)
"""
    for process in start(network, program, each=1, DISTDBG_LINK_CHECKSUM="1"):
        text = output(process)
        assert text.startswith(
            "LinkCorruptedError the creation of group 'world' failed: a message from rank 0 on host node0 "
            "to rank 1 on host node1 was changed on its way\n"
        ), text


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_wrong_interface_is_told_with_both_ends_and_what_was_tried(
    network: Network, tmp_path: Path
) -> None:
    program = """
import os, sys, time
from datetime import timedelta
import distdbg as dist
init = dist.init_process_group
open(f"{sys.argv[1]}/up{os.environ['RANK']}", "w").close()
while not all(os.path.exists(f"{sys.argv[1]}/up{rank}") for rank in range(2)):
    time.sleep(0.01)  # an interpreter may need longer to start than the group may take
try:
    init(timeout=timedelta(seconds=3))
except dist.DistError as error:
    print(type(error).__name__, error)
"""
    ranks = start(network, program, tmp_path, each=1, DISTDBG_SOCKET_IFNAME="lo")
    for rank, process in enumerate(ranks):
        other, port = 1 - rank, r"127\.0\.0\.1:\d+"
        assert re.fullmatch(
            rf"PeerLost rank {other} on host node{other} cannot be reached; "
            rf"this rank needed it to make group 'world'\n"
            rf"  no way to rank {other}; tried {port} \(Connection refused\); this rank is at {port}\n"
            r"  the group was not made\n"
            r"  hint: name the interface by which each host is reached with DISTDBG_SOCKET_IFNAME\n",
            text := output(process),
        ), text


@pytest.mark.parametrize("network", [2], indirect=True)
def test_what_rank_0_says_of_checksums_counts(network: Network) -> None:
    env = {"WORLD_SIZE": "2", "DISTDBG_KEEPALIVE_S": str(KEEPALIVE_S)}
    ranks = [
        start_one(network, rank, PROGRAM, {**env, "RANK": str(rank), "DISTDBG_LINK_CHECKSUM": on})
        for rank, on in enumerate(("1", "0"))
    ]
    for process in ranks:
        assert output(process, 120) == "right\n"


RESTING = """
import sys, time
import distdbg as dist

dist.init_process_group()
print("ready", flush=True)
dist.barrier()
sys.stdin.read()
"""


def test_agents_that_no_launcher_started_know_all_hosts(network: Network, tmp_path: Path) -> None:
    homes = [tmp_path / host.name for host in network.hosts]
    places = []
    for home in homes:
        home.mkdir(0o700)
        places.append(
            {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "DISTDBG_RUN_DIR": str(home)}
        )
    ranks = []
    for rank in range(3):
        env = {"WORLD_SIZE": "3", "RANK": str(rank), "DISTDBG_AGENT": "1", **places[rank]}
        ranks.append(start_one(network, rank, RESTING, env))
    for process in ranks:
        await_line(process, "ready")
    for number, host in enumerate(network.hosts):
        until = time.monotonic() + 60
        while True:
            # No agent may be up yet: a rank starts it and goes on.
            ps = host.start([sys.executable, "-m", "distdbg", "ps"], common() | places[number])
            shown, error = ps.communicate(timeout=120)
            if all(re.search(rf"^ +{rank} +node{rank} ", shown, re.MULTILINE) for rank in range(3)):
                break
            assert time.monotonic() < until, shown + error
            time.sleep(0.2)  # nothing announces an agent
