"""`python -m benchmarks.store`: set+get per second of our TCPStore beside torch's.

1, 2 and 4 client processes, each with a connection of its own, on one server in this process. A round
runs every library once, one after the other; the table shows medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks.machine import describe_machine

LIBRARIES = ("distdbg", "torch")
CLIENTS = (1, 2, 4)
CLIENT = """
import sys, time
library, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if library == "torch":
    import torch.distributed as dist
else:
    import distdbg as dist
store = dist.TCPStore("127.0.0.1", port, is_master=False)
key, value = f"key{sys.argv[4]}", "v" * 16
print("ready", flush=True)
sys.stdin.readline()
count, begin = 0, time.perf_counter()
while time.perf_counter() - begin < seconds:
    for _ in range(50):
        store.set(key, value)
        store.get(key)
    count += 50
print(count / (time.perf_counter() - begin), flush=True)
"""


def open_server(library: str) -> Any:
    """A served store of the library, on a free port."""
    if library == "torch":
        import torch.distributed as dist
    else:
        import distdbg as dist  # type: ignore[no-redef]
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def measure(library: str, port: int, clients: int, seconds: float) -> float:
    """Pairs of set and get per second, of all clients together."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, library, str(port), str(seconds), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(clients)
    ]
    try:
        for process in processes:
            if read_line(process) != "ready":
                raise RuntimeError(f"a client of {library} did not start")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return sum(float(read_line(process)) for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per measurement")
    args = parser.parse_args()
    servers = {}
    for library in LIBRARIES:
        try:
            servers[library] = open_server(library)
        except ImportError as error:
            print(f"gap: {library}: {error}")
    rates: dict[tuple[str, int], list[float]] = {}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        for clients in CLIENTS:
            for library, server in servers.items():
                rate = measure(library, server.port, clients, args.seconds)
                rates.setdefault((library, clients), []).append(rate)
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print(f"{'load':<17} {os.getloadavg()[0]:.1f}\n")
    print("set+get per second, median (lowest .. highest)")
    print(f"{'clients':<9}" + "".join(f"{library:>28}" for library in servers) + f"{'ratio':>9}")
    for clients in CLIENTS:
        line = f"{clients:<9}"
        for library in servers:
            found = rates[library, clients]
            line += f"{median(found):>10,.0f} ({min(found):,.0f} .. {max(found):,.0f})".rjust(28)
        if len(servers) == 2:
            ours, theirs = (median(rates[library, clients]) for library in LIBRARIES)
            line += f"{ours / theirs:>8.2f}x"
        print(line)
    servers.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
