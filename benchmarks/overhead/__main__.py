"""`python -m benchmarks.overhead [--write]`: what the record and the check cost.

Our ops unwrapped (`DISTDBG_UNWRAPPED=1`), at OFF, INFO and DETAIL take turns, beside torch gloo at
OFF and at DETAIL; then the price of each option and of everything else that is written down or
compared. Prints Markdown; --write puts it into docs/explanation/overhead.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.launch import CHECKOUT
from benchmarks.machine import describe_machine
from benchmarks.overhead.contests import NAMES, Contest, all_contests
from benchmarks.overhead.measure import Effort, Samples, run_contest
from benchmarks.overhead.report import format_report
from benchmarks.peers import find_peer

PAGE = CHECKOUT / "docs" / "explanation" / "overhead.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--ranks", default="1,2,4", help="world sizes of the calls")
    parser.add_argument("--only", default=",".join(NAMES), help="contests, a list of these")
    parser.add_argument("--subjects", help="names of columns, a list; all if not given")
    parser.add_argument(
        "--rounds", type=int, default=Effort().rounds, help="fresh processes in each"
    )
    parser.add_argument("--turns", type=int, default=Effort().turns, help="in each round")
    parser.add_argument("--quick", action="store_true", help="few turns: a look, no numbers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times there")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(CHECKOUT)}")
    args = parser.parse_args(argv)
    names = args.only.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"unknown contest {unknown[0]!r}; there are {', '.join(NAMES)}")
    effort = Effort(rounds=args.rounds, turns=args.turns)
    if args.quick:
        effort = Effort(rounds=1, turns=2, bursts=2, burst_s=0.0005)
    chosen = [
        contest
        for contest in all_contests(tuple(int(text) for text in args.ranks.split(",")))
        if contest.name in names
    ]
    # Turned into an exception, so that the ranks are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    machine = describe_machine()
    gaps: dict[str, str] = {}
    measured = measure(chosen, effort, args.subjects, gaps)
    text = "\n\n".join([_format_machine(machine, effort), format_report(measured, gaps)])
    print(text)
    if args.json:
        args.json.write_text(json.dumps(_to_json(machine, measured, gaps)) + "\n")
    if args.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
        print(f"Wrote {PAGE}", file=sys.stderr)
    return 0


def measure(
    contests: Sequence[Contest], effort: Effort, wanted: str | None, gaps: dict[str, str]
) -> list[Samples]:
    """Run the contests; what cannot be measured becomes a gap."""
    gloo = find_peer("gloo")
    if gloo.gap is not None:
        gaps["gloo"] = gloo.gap
    names = wanted.split(",") if wanted else None
    measured = []
    for contest in contests:
        subjects = []
        for subject in contest.subjects:
            if names is not None and subject.name not in names:
                continue
            if subject.library == "gloo":
                if gloo.gap is not None:
                    continue
                start = gloo.start(contest.world_size, 0)
                subject = replace(subject, env=(*start.env.items(), *subject.env))
            subjects.append(subject)
        if not subjects:
            continue
        ready = replace(contest, subjects=tuple(subjects))
        samples, reason = run_contest(ready, effort, _say)
        if reason is not None:
            gaps[f"the rest of {contest.name}, {contest.world_size} ranks"] = reason
        measured.append(samples)
    return measured


def _format_machine(machine: dict[str, str], effort: Effort) -> str:
    facts = [f"- {name}: {value}" for name, value in machine.items()]
    facts.append(f"- {effort.rounds} rounds of {effort.turns} turns of {effort.bursts} bursts")
    return "\n".join(facts)


def _to_json(
    machine: dict[str, str], measured: Sequence[Samples], gaps: dict[str, str]
) -> dict[str, object]:
    rows = [
        {
            "contest": samples.contest.name,
            "world_size": samples.contest.world_size,
            "kind": case.kind,
            "nbytes": case.nbytes,
            "subject": subject,
            "times_s": times,
        }
        for samples in measured
        for (case, subject), times in samples.times_s.items()
    ]
    return {"machine": machine, "rows": rows, "gaps": gaps}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
