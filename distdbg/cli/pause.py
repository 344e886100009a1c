"""`distdbg pause` and `distdbg resume`: stop the deadlines of a running job, and let them run on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from distdbg.cli.chosen_run import add_live_run
from distdbg.cli.clock_words import who_holds
from distdbg.client.ways import find_way


def main(argv: Sequence[str], do: str = "pause") -> int:
    """Do it on all hosts of the job."""
    about = {
        "pause": "Stop all deadlines of a running job: nothing times out until distdbg resume.",
        "resume": "Let the deadlines of a paused job run on, as if no time had passed.",
    }
    parser = argparse.ArgumentParser(prog=f"distdbg {do}", description=about[do])
    add_live_run(parser)
    with find_way(parser.parse_args(argv).run) as way, way.connect() as client:
        run = client.hello["run"]
        answer = client.ask(do)
        holder = ""
        if do == "resume":
            rows = client.ask("ranks")["ranks"]
            holder = who_holds(client.ask("about")["control"] or {}, rows)
    was_so = answer.get("changed") is False
    words = {"pause": "paused", "resume": "resumed"}[do]
    sys.stderr.write(
        f"run {run} {'was' if was_so else 'is'} {words}{' already' if was_so else ''}\n"
    )
    if holder:
        sys.stderr.write(f"its clock stands all the same for {holder}; it runs when that is over\n")
    return 0
