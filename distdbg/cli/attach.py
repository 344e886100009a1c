"""`distdbg attach`: a debugger on a rank of a running job, from another terminal or host.

A rank that sits at a breakpoint can always be debugged; one that runs only where the job was started with
--debuggable, since a debugger can do anything that the job's user can.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from distdbg.cli.rank_debuggers import RankDebuggers, find_debuggers
from distdbg.command import print_error
from distdbg.debugger.interaction import interact
from distdbg.errors import DistNetworkError, UsageError
from distdbg.record.printable import printable


def main(argv: Sequence[str]) -> int:
    """Debug a rank until the person leaves, or the rank ends."""
    parser = argparse.ArgumentParser(
        prog="distdbg attach",
        description=__doc__,
        epilog="Commands are pdb's. `detach` and Ctrl-D leave: a rank at a breakpoint stays there after "
        "`detach` and goes on after Ctrl-D, one that was stopped by attaching goes on. Ctrl-C interrupts "
        "what the rank does. Lines are read from stdin where that is no terminal.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="which run, also HOST:PORT, ssh://HOST/RUN or a folder; not needed for the only one",
    )
    parser.add_argument(
        "--rank", type=int, metavar="N", help="which rank; not needed for the only stopped one"
    )
    parser.add_argument("--once", action="store_true", help="leave when the rank goes on")
    chosen = parser.parse_args(argv)
    with find_debuggers(chosen.run) as debuggers:
        rank = _only_stopped(debuggers) if chosen.rank is None else chosen.rank
        try:
            client = debuggers.connect(rank, on_slow=lambda text: print_error(f"distdbg: {text}"))
            over = interact(client, stays=not chosen.once)
        except DistNetworkError as error:
            how = debuggers.how_it_ended(rank)
            if not how:
                raise
            raise DistNetworkError(f"rank {rank} {how}") from error
    sys.stdout.flush()
    print_error(f"distdbg: {printable(over)}")
    return 0


def _only_stopped(debuggers: RankDebuggers) -> int:
    stopped = debuggers.stopped()
    if len(stopped) == 1:
        return stopped[0].rank
    if not stopped:
        raise UsageError(
            f"no rank of run {debuggers.name} is stopped: which one is to be?",
            hint="--rank N stops a rank of a job that was started with --debuggable; "
            "distdbg break stops one at an op",
        )
    raise UsageError(
        f"{len(stopped)} ranks of run {debuggers.name} are stopped: which one?",
        details=[f"rank {one.rank} at {one.site}: {one.why}" for one in stopped[:16]],
        hint="--rank N",
    )
