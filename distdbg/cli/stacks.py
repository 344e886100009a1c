"""`distdbg stacks`: where each rank of a running job is, on all its hosts, without asking the ranks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from distdbg.cli.chosen_run import add_live_run
from distdbg.client.ways import ask_all_hosts, find_way
from distdbg.errors import UsageError
from distdbg.follow.merge import MergedStack, join, render
from distdbg.record.printable import printable
from distdbg.record.rank_list import read_ranks


def main(argv: Sequence[str]) -> int:
    """Print the stacks; exit code 1 when those of a rank could not be taken."""
    parser = argparse.ArgumentParser(
        prog="distdbg stacks",
        description=__doc__,
        epilog="Equal stacks are printed once, with the ranks that have them. py-spy takes them "
        "where it is installed; else the ranks write them when a signal asks for it.",
    )
    add_live_run(parser)
    parser.add_argument("--rank", metavar="LIST", help="of these ranks alone: 0-3,7")
    parser.add_argument(
        "--python", action="store_true", help="without the frames of libraries in C"
    )
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="how long it may take (5)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    chosen = parser.parse_args(argv)
    arguments: dict[str, object] = {"native": not chosen.python}
    if chosen.rank is not None:
        try:
            arguments["ranks"] = read_ranks(chosen.rank)
        except ValueError as error:
            raise UsageError(f"--rank {chosen.rank!r}: {error}", hint="write 0-3,7") from None
    if not 0 < chosen.timeout <= 60:
        raise UsageError("--timeout is more than 0 and at most 60 seconds")
    stacks: list[MergedStack] = []
    found: dict[str, Any] = {"how": {}, "failed": []}
    silent = []
    with find_way(chosen.run) as way:
        for one in ask_all_hosts(
            way, "stacks", timeout_s=chosen.timeout + 5.0, limit_s=chosen.timeout, **arguments
        ):
            if one.error is not None:
                silent.append(f"host {one.host}: {one.error.what}")
                continue
            stacks += [MergedStack.from_plain(facts) for facts in one.answer["stacks"]]
            found["how"] |= one.answer["how"]
            found["failed"] += one.answer["failed"]
    stacks = join(stacks)
    if not (stacks or found["failed"] or silent):
        which = "" if chosen.rank is None else f" {chosen.rank}"
        raise UsageError(f"the job has no such rank{which}", hint="distdbg ps lists its ranks")
    if chosen.json:
        document = {"stacks": [stack.to_plain() for stack in stacks], **found}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        failed = [(one["rank"], one["why"]) for one in found["failed"]]
        sys.stdout.write("".join(line + "\n" for line in render(stacks, failed)))
    for line in silent:
        sys.stderr.write(f"{printable(line)}\n")
    return 1 if found["failed"] or silent or not stacks else 0
