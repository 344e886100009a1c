"""`distdbg stop`: end a running job."""

from __future__ import annotations

import argparse
import getpass
import sys
import time
from collections.abc import Sequence

from distdbg.cli.chosen_run import add_live_run
from distdbg.client.agent_client import AgentClient
from distdbg.client.ways import find_way
from distdbg.errors import DistNetworkError, UsageError, format_ranks

_WAIT_S = 10.0


def main(argv: Sequence[str]) -> int:
    """End it and wait until it is over; exit code 1 when it is not after ten seconds."""
    parser = argparse.ArgumentParser(
        prog="distdbg stop",
        description=__doc__,
        epilog="The launchers of all hosts are asked to end their ranks, or, without any, each rank of "
        "this host is (SIGTERM). With --abort each rank raises JobAborted in the op that it waits "
        "in, or begins next.",
    )
    add_live_run(parser)
    parser.add_argument(
        "--abort", metavar="WHY", help="have the ranks raise JobAborted with this text"
    )
    parser.add_argument("--kill", action="store_true", help="SIGKILL to the ranks")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    chosen = parser.parse_args(argv)
    with find_way(chosen.run) as way, way.connect_root() as client:
        run = client.hello["run"]
        rows = [
            r for r in client.ask("ranks")["ranks"] if r["state"] not in ("ended", "failed", "dead")
        ]
        ranks = format_ranks(row["rank"] for row in rows)
        if not chosen.yes and not _is_sure(f"end run {run} (ranks {ranks})?"):
            sys.stderr.write("nothing was done\n")
            return 1
        if chosen.abort is not None:
            client.ask("abort", what=chosen.abort, by=getpass.getuser())
            sys.stderr.write(f"aborted run {run}: {chosen.abort}\n")
            return 0
        client.ask("stop", kill=chosen.kill)
        if not _is_over(client):
            sys.stderr.write(f"run {run} has not ended within {_WAIT_S:.0f} s\n")
            return 1
        sys.stderr.write(f"run {run} has ended\n")
        return 0


def _is_sure(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("distdbg stop asks before it ends a run", hint="give --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_over(client: AgentClient) -> bool:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        try:
            rows = client.ask("ranks")["ranks"]
        except DistNetworkError:
            return True  # the agent has left, after the last rank
        if all(row["state"] in ("ended", "failed", "dead") for row in rows):
            return True
        time.sleep(0.05)
    return False
