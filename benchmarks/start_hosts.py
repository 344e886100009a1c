"""`python -m benchmarks.start_hosts`: how launchers and agents of many hosts find each other.

Every host is a real rendezvous (`distdbg.launch.rendezvous`), with its two connections to the launchers'
store and the thread that beats, and after it a real place in the tree of agents (`distdbg.hosts`), with
a listener, links and a connection of its own. Host 0 has a process for itself, and serves the store; the
others share a few processes. All of them have loopback addresses of their own and no ranks.

    met        until every launcher has its round, and so the number of its ranks
    connected  until the root of the tree hears all hosts
    while met  what one round trip to the store takes meanwhile, for a client that only asks for a counter
    at rest    what the process of host 0 takes of one core once all is there: beats, looks and pings

All hosts compete for the cores of one machine: the times are those of all hosts' work, one after the other.
On real hosts only what the process of host 0 does (`CPU`) is done one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.machine import describe_machine
from benchmarks.table import align
from distdbg.hosts import links

PATIENCE_S = 600.0
IDLE_S = 5.0
LOCAL_RANKS = 8
JOB = "start"


def address_of(host: int) -> str:
    """A loopback address for each host, as a host of a cluster has one."""
    return f"127.1.{host // 250}.{host % 250 + 1}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a launcher's flags would say."""

    rdzv_host: str
    rdzv_port: int
    max_nodes: int
    node_rank: int
    rdzv_backend: str = "static"
    rdzv_id: str = JOB
    local_addr: str | None = None
    standalone: bool = False

    @property
    def rdzv_endpoint(self) -> str:
        return f"{self.rdzv_host}:{self.rdzv_port}"

    @property
    def rdzv_conf(self) -> dict[str, str]:
        # So that a machine that is too small for all hosts takes none of them for dead.
        return {"keep_alive_max_attempt": "40"}

    @property
    def min_nodes(self) -> int:
        return self.max_nodes


class Host:
    """A launcher and an agent, in a thread that ends when both are where they belong."""

    def __init__(self, number: int, hosts: int, port: int, token: str) -> None:
        from distdbg.launch.rendezvous.registry import make_rendezvous

        self.number = number
        self.met_s = 0.0
        self.tree: Any = None
        self.trouble = ""
        self._hosts = hosts
        self._token = token
        self.rendezvous: Any = make_rendezvous(
            Options(rdzv_host=address_of(0), rdzv_port=port, max_nodes=hosts, node_rank=number)
        )
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._start()
        except Exception as error:  # noqa: BLE001  # told by the process that has all hosts
            self.trouble = f"host {self.number}: {type(error).__name__}: {error}"

    def _start(self) -> None:
        from distdbg.hosts.place import Tree
        from distdbg.launch.rendezvous.round import NodeFacts

        address = address_of(self.number)
        facts = NodeFacts(
            name=f"h{self.number}", addr=address, host=f"host{self.number}", nproc=LOCAL_RANKS
        )
        deadline_ns = time.monotonic_ns() + int(PATIENCE_S * 1e9)
        found = self.rendezvous.next_round(facts, deadline_ns)
        self.met_s = time.monotonic()
        self.tree = Tree(
            facts.host, self._hosts, found.node_rank, found.store_url("agents"),
            self._token.encode(), run=JOB, round_number=found.number, addr=address,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one start showed."""

    hosts: int
    met_s: float
    connected_s: float
    root_cpu_s: float
    """Of host 0's process, from the start until all hosts were connected."""
    root_idle: float
    """Of one core, later."""
    root_rss: int
    root_fds: int
    root_links: int
    """To agents of other hosts."""
    trips_s: Sequence[float]
    fds_per_host: float
    trouble: str = ""


def measure(hosts: int, processes: int) -> Measured:
    """Start so many hosts in so many processes beside that of host 0."""
    from tests.support.ports import free_port

    port, token = free_port(), os.urandom(16).hex()
    shares = [list(range(1 + at, hosts, processes)) for at in range(processes)]
    children = [_spawn([0], hosts, port, token)]
    children += [_spawn(share, hosts, port, token) for share in shares if share]
    try:
        for child in children:
            _read(child)
        begin_s = time.monotonic()
        for child in children:
            _tell(child, "go")
        met_s = max(_read(child)["met_s"] for child in children)
        _tell(children[0], "connect")
        root = _read(children[0])
        others = []
        for child in children[1:]:
            _tell(child, "connect")
            others.append(_read(child))
        return Measured(
            hosts=hosts, met_s=met_s - begin_s, connected_s=root["connected_s"] - begin_s,
            root_cpu_s=root["cpu_s"], root_idle=root["idle"], root_rss=root["rss"],
            root_fds=root["fds"], root_links=root["links"], trips_s=root["trips_s"],
            fds_per_host=sum(one["fds"] for one in others) / max(1, hosts - 1),
        )  # fmt: skip
    except _Failed as error:
        nan = float("nan")
        return Measured(
            hosts=hosts, met_s=nan, connected_s=nan, root_cpu_s=nan, root_idle=nan, root_rss=0,
            root_fds=0, root_links=0, trips_s=[nan], fds_per_host=nan, trouble=str(error),
        )  # fmt: skip
    finally:
        for child in children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()


class _Failed(Exception):
    """A process of hosts could not go on."""


def _spawn(share: Sequence[int], hosts: int, port: int, token: str) -> subprocess.Popen[str]:
    words = json.dumps({"share": list(share), "hosts": hosts, "port": port})
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.start_hosts", "--share", words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "DISTDBG_TOKEN": token},
    )  # fmt: skip


def _tell(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdin is not None
    print(word, file=child.stdin, flush=True)


def _read(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise _Failed("a process ended")
    words: dict[str, Any] = json.loads(line)
    if words.get("trouble"):
        raise _Failed(words["trouble"])
    return words


# In a process of hosts -------------------------------------------------------------------------


def run_share(words: dict[str, Any], orders: IO[str]) -> None:
    """Be these hosts; tells the parent on stdout, and goes on when it says so."""
    threading.stack_size(256 << 10)
    # Hundreds of threads that wait for the interpreter lock would else wake up every 5 ms each to ask for it.
    sys.setswitchinterval(0.05)
    # As with the launchers: an agent that waits for its share of two cores is no dead one.
    links.SILENCE_NS = links.GREETING_NS = int(PATIENCE_S * 1e9)  # type: ignore[misc]
    hosts = [
        Host(number, words["hosts"], words["port"], os.environ["DISTDBG_TOKEN"])
        for number in words["share"]
    ]
    is_root = words["share"] == [0]
    say(ready=True)
    orders.readline()
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    for host in hosts:
        host.thread.start()
    prober = Prober(store_port(hosts[0])) if is_root else None
    for host in hosts:
        host.thread.join(PATIENCE_S)
    trips_s = prober.stop() if prober is not None else []
    trouble = next((host.trouble for host in hosts if host.trouble), "")
    say(met_s=max(host.met_s for host in hosts), trouble=trouble)
    orders.readline()
    root = hosts[0].tree
    while is_root and len(root.node.rows.hosts) < words["hosts"]:
        if time.monotonic() - begin_s > PATIENCE_S:
            say(trouble=f"{len(root.view().hosts)} hosts are in touch with the root")
            return
        time.sleep(0.01)
    connected_s, cpu_s = time.monotonic(), time.process_time() - begin_cpu_s
    idle = 0.0
    if is_root:
        before_s = time.process_time()
        time.sleep(IDLE_S)
        idle = (time.process_time() - before_s) / IDLE_S
    say(
        connected_s=connected_s, cpu_s=cpu_s, idle=idle, trips_s=trips_s,
        rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        fds=len(list(Path("/proc/self/fd").iterdir())),
        links=len(root.node.rows.links) - 1,  # its own rows are one
    )  # fmt: skip
    orders.readline()


def store_port(host: Host) -> int:
    """Where the launchers' store is, as soon as it is there."""
    while host.rendezvous._reached is None:
        time.sleep(0.001)
    port: int = host.rendezvous._reached.port
    return port


class Prober:
    """A client that asks for a counter, again and again, in a process of its own."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.start_hosts", "--probe", str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def stop(self) -> list[float]:
        trips_s: list[float] = json.loads(self._process.communicate("")[0])
        return trips_s


def probe(port: int, orders: IO[str]) -> None:
    """Until `orders` ends: a round trip, 5 ms of pause."""
    from distdbg.runtime.store import TCPStore

    store = TCPStore(address_of(0), port, timeout=60)
    is_over = threading.Event()
    threading.Thread(target=lambda: (orders.read(), is_over.set()), daemon=True).start()
    trips_s = []
    while not is_over.wait(0.005):
        begin_s = time.perf_counter()
        store.add("probe", 0)
        trips_s.append(time.perf_counter() - begin_s)
    print(json.dumps(trips_s))


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


# Output ----------------------------------------------------------------------------------------


def format_measured(found: Sequence[Measured]) -> str:
    lines = [
        [
            *("hosts", "met", "connected", "while met", "slowest", "CPU", "at rest", "memory"),
            *("files", "links", "files of another host"),
        ]
    ]
    lines += [
        [
            f"{one.hosts:,}",
            f"{one.met_s:.2f} s",
            f"{one.connected_s:.2f} s",
            f"{median(one.trips_s or [0.0]) * 1e3:.2f} ms",
            f"{max(one.trips_s, default=0.0) * 1e3:.0f} ms",
            f"{one.root_cpu_s:.2f} s",
            f"{one.root_idle:.1%}",
            f"{one.root_rss / 2**20:.0f} MiB",
            f"{one.root_fds:,}",
            f"{one.root_links}",
            f"{one.fds_per_host:.1f}",
        ]
        for one in found
    ]
    table = align(lines, left=())
    return "\n".join([table, *(f"{one.hosts}: {one.trouble}" for one in found if one.trouble)])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_hosts", description=__doc__)
    parser.add_argument("--hosts", default="16,64,256,1000", help="how many")
    parser.add_argument("--processes", type=int, default=8, help="that all but host 0 share")
    parser.add_argument("--share", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.share is not None:
        run_share(args.share, sys.stdin)
        return 0
    if args.probe is not None:
        probe(args.probe, sys.stdin)
        return 0
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print(flush=True)
    found = []
    for hosts in map(int, args.hosts.split(",")):
        found.append(measure(hosts, args.processes))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(format_measured(found))
    return int(any(one.trouble for one in found))


if __name__ == "__main__":
    sys.exit(main())
