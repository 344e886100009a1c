"""`python -m benchmarks.limited`: all_reduce on 2 hosts with 2 ranks each, over a link of limited rate.

Beside torch gloo and the bound: what a host has to send of n bytes in an all_reduce over 2 hosts is n bytes,
and no algorithm sends less. The hosts are namespaces (tests/support/network.py). The link is a pair of veth
that the kernel holds to the rate where that is allowed, which wants root; else a thread here carries
the packets, and takes part of a core for that. The kernel's link lets through at once what it has saved
up, so much less has to pass at the rate. It saves what passes in 5 ms, or a tenth of the op, since a timer of
a busy machine comes late, and a link that saves nothing then rests. `others`: how many cores other processes
had meanwhile, or other machines of the same host.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.cases import format_size, parse_size
from benchmarks.machine import read_usage
from tests.support.network import Network, NetworkHost, why_not

HOSTS, EACH = 2, 2
#: What the kernel's link saves up while nothing passes, and the most of an op that this may be.
BUCKET_S, BUCKET_SHARE = 5e-3, 0.1
LINKS = ("kernel", "thread")
PROGRAM = """
import json, sys, time
library, nbytes, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
import numpy as np
x = np.ones(nbytes // 4, np.float32)
if library == "gloo":
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    x = torch.from_numpy(x)
else:
    import distdbg as dist
dist.init_process_group("gloo")
times = []
for _ in range(rounds + 1):
    time.sleep(0.02)  # the link has saved what it can
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(x)
    times.append(time.perf_counter() - began)
    x[:] = 1
worst = np.array(times[1:])
everybody = torch.from_numpy(worst) if library == "gloo" else worst
dist.all_reduce(everybody, op=dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print(json.dumps([float(t) for t in worst]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def saved_s(nbytes: int, rate: float) -> float:
    """How much sooner an op of so many bytes is over the kernel's link."""
    return min(BUCKET_S, BUCKET_SHARE * nbytes / rate)


def link_in_kernel(hosts: Sequence[NetworkHost], rate: float, bucket_nbytes: int) -> list[str]:
    """Join two hosts by a cable of that rate each way; their addresses on it. OSError: it is not allowed."""
    one, other = (f"netns {host.pid}" for host in hosts)
    addresses = [f"10.78.0.{number + 1}" for number in range(len(hosts))]
    _ip(f"link add v0 {one} type veth peer name v0 {other}")
    for host, address in zip(hosts, addresses, strict=True):
        bucket = f"tbf rate {round(rate * 8)}bit burst {bucket_nbytes}b latency 400ms"
        for command in (
            f"ip addr add {address}/24 dev v0",
            "ip link set v0 up",
            f"tc qdisc add dev v0 root {bucket}",
        ):
            done = host.start(command.split())
            if done.communicate()[1] or done.returncode:
                raise OSError(f"{command}: exit code {done.returncode}")
    return addresses


def _ip(words: str) -> None:
    _run("ip", *words.split())


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())


def set_congestion(host: NetworkHost, algorithm: str) -> None:
    """How TCP on that host controls congestion; of all but reno the system has to allow it."""
    setting = f"net.ipv4.tcp_congestion_control={algorithm}"
    _run("nsenter", "--net", f"--target={host.pid}", "sysctl", "--quiet", "--write", setting)


def why_no_kernel() -> str | None:
    """Why the kernel cannot be the link here; None if it can."""
    try:
        with tempfile.TemporaryDirectory() as folder, Network(HOSTS, folder) as network:
            link_in_kernel(network.hosts, 1e6, 10_000)
    except OSError as error:
        return str(error)
    return None


def measure(
    library: str, nbytes: int, rate: float, rounds: int, link: str, congestion: str | None
) -> list[float]:
    """Seconds of each all_reduce, of the slowest rank."""
    with tempfile.TemporaryDirectory() as folder, Network(HOSTS, folder) as network:
        for host in network.hosts:
            if congestion is not None:
                set_congestion(host, congestion)
        ranks = []
        interface, addresses = "t0", [host.address for host in network.hosts]
        if link == "kernel":
            bucket = round(rate * saved_s(nbytes, rate))
            interface, addresses = "v0", link_in_kernel(network.hosts, rate, bucket)
        for rank in range(HOSTS * EACH):
            host = network.hosts[rank // EACH]
            env = {
                "PYTHONPATH": str(Path(__file__).parents[1]),
                "MASTER_ADDR": addresses[0],
                "MASTER_PORT": "29500",
                "WORLD_SIZE": str(HOSTS * EACH),
                "RANK": str(rank),
                "DISTDBG_TOKEN": "benchmark",
                "DISTDBG_AGENT": "0",
                "GLOO_SOCKET_IFNAME": interface,
                "DISTDBG_SOCKET_IFNAME": interface,
            }
            command = [sys.executable, "-c", PROGRAM, library, str(nbytes), str(rounds)]
            ranks.append(host.start(command, env))
        for way in network.ways.values():
            way.rate = rate
        outputs = [process.communicate(timeout=300) for process in ranks]
    if not outputs[0][0]:
        raise RuntimeError(f"{library}: {outputs[0][1][-2000:]}")
    return [float(seconds) for seconds in json.loads(outputs[0][0])]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limited", description=__doc__)
    parser.add_argument("--mbit", type=float, default=200)
    parser.add_argument("--sizes", default="1MiB,8MiB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--libraries", default="distdbg,gloo")
    parser.add_argument("--link", choices=LINKS, help="the kernel's, or a thread's")
    parser.add_argument("--congestion", metavar="NAME", help="as reno; not given: the system's")
    args = parser.parse_args(argv)
    reason = why_not()
    if reason is not None:
        print(f"gap: no hosts can be made here: {reason}")
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rate = args.mbit * 1e6 / 8
    link = args.link or ("thread" if why_no_kernel() else "kernel")
    load = os.getloadavg()[0]
    print(
        f"{HOSTS} hosts x {EACH} ranks, {args.mbit:g} Mb/s each way by a {link}'s link, "
        f"congestion control {args.congestion or 'of the system'}, load {load:.1f}"
    )
    for size in args.sizes.split(","):
        nbytes = parse_size(size)
        bound = nbytes / rate - (saved_s(nbytes, rate) if link == "kernel" else 0.0)
        line = f"all_reduce {format_size(nbytes):>8}  bound {bound * 1e3:8.1f} ms"
        for library in args.libraries.split(","):
            before = read_usage()
            times = measure(library, nbytes, rate, args.rounds, link, args.congestion)
            others = read_usage().others_since(before)
            seconds = median(times)
            line += f"  {library} {seconds * 1e3:8.1f} ms ({seconds / bound:.2f} x, others {others:.1f})"
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
