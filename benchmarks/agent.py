"""`python -m benchmarks.agent`: what the agent of a host costs, beside ranks that do nothing but ops.

Starts busy ranks with an agent, asks the agent twice for the CPU time it has used, and shows the share of
a core in between: with nobody asking, and with a dashboard that subscribes to all rows. Exit code 1: it was
more than it may take while nobody asks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.job import start_with_agent
from benchmarks.machine import describe_machine
from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistNetworkError

#: What it may take while nobody asks, beside eight ranks on a host that does nothing else.
MOST_SHARE = 0.02
RANK = """
import sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
x, go_on = np.ones(2), np.ones(1)
end = time.monotonic() + float(sys.argv[1])
while go_on[0]:
    for _ in range(100):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    go_on[0] = time.monotonic() < end
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
"""


def connect(folder: Path) -> AgentClient:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in folder.glob("distdbg-*/.agents/*.sock"):
            with suppress(DistNetworkError):
                return AgentClient.at(path)
        time.sleep(0.05)
    raise SystemExit("no agent came")


def share(client: AgentClient, seconds: float, *, listens: bool) -> float:
    """The part of a core that the agent uses."""
    before = client.ask("about")
    if listens:
        end = time.monotonic() + seconds
        for _ in client.events(seconds):
            if time.monotonic() >= end:
                break
    else:
        time.sleep(seconds)
    after = client.ask("about")
    return float((after["cpu_s"] - before["cpu_s"]) / (after["up_s"] - before["up_s"]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each of the two measurements"
    )
    chosen = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-c", RANK, str(2 * chosen.seconds + 8)]
        processes = start_with_agent(Path(name), chosen.ranks, command)
        try:
            with connect(Path(name)) as client:
                while len(client.ask("ranks")["ranks"]) < chosen.ranks:
                    time.sleep(0.1)
                time.sleep(1)
                begun_s = client.ask("about")["cpu_s"]
                quiet = share(client, chosen.seconds, listens=False)
                client.ask("subscribe", to=["ranks"])
                heard = share(client, chosen.seconds, listens=True)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    print(f"{chosen.ranks} busy ranks; the agent took {begun_s:.2f} s of CPU time to begin")
    print(f"  nobody asks          {quiet:.2%} of a core")
    print(f"  a dashboard listens  {heard:.2%} of a core")
    if quiet > MOST_SHARE:
        print(f"more than {MOST_SHARE:.0%}, which is what it may take while nobody asks")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
