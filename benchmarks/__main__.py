"""`python -m benchmarks`: distdbg beside torch gloo, Open MPI and MPICH, in one table.

Everything is measured on this machine in this run. A library that is not installed, or fails, is
a named gap. The table goes to stdout, progress to stderr, all numbers to --json FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import DEFAULT_SIZES, KINDS, Case, format_size, make_cases, parse_size
from benchmarks.compare import Comparison, compare
from benchmarks.machine import describe_machine
from benchmarks.measure import Limits
from benchmarks.peers import LIBRARIES, TRANSPORTS, Peer, find_peer
from benchmarks.table import Row, count_targets, format_table

#: The second table: from this size on, caches matter.
REWRITTEN_NBYTES = 64 << 10
REWRITTEN = """\
The same, but that each rank writes what it sends before each op, as programs do: no peer has it in its
cache. What the writing takes by itself is taken off."""

METHOD = """\
time   seconds per op: median over rounds of the median over blocks; a block is a barrier, then
       iterations back to back, and counts as long as its slowest rank; send_recv is half a round
       trip between ranks 0-1, 2-3, ...; the result of every case is checked before it is timed
size   all_reduce, broadcast, send_recv: bytes of the buffer; all_gather, reduce_scatter,
       all_to_all: bytes of the larger (total) buffer of one rank; float32, at least one per rank
vs     time of the peer over ours: above 1 we are faster; spread: our slowest round over our
       fastest"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add_common_arguments(parser)
    parser.add_argument("--sizes", default=",".join(map(format_size, DEFAULT_SIZES)))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument(
        "--tables",
        default="kept,rewritten",
        help="kept: what is sent stays as it is; rewritten: it is written before each op",
    )
    parser.add_argument("--quick", action="store_true", help="one short round: a look, no numbers")
    args = parser.parse_args(argv)
    try:
        sizes = tuple(parse_size(text) for text in args.sizes.split(","))
        cases = make_cases(tuple(args.kinds.split(",")), sizes)
    except ValueError as error:
        parser.error(str(error))
    limits = Limits(case_s=args.case_seconds)
    if args.quick:
        args.rounds = 1
        limits = Limits(warmup_s=0.003, block_s=0.003, case_s=0.03)
    tables = args.tables.split(",")
    if unknown := set(tables) - {"kept", "rewritten"}:
        parser.error(f"there is no table {unknown.pop()!r}")
    code = run(args, cases, limits) if "kept" in tables else 0
    large = [case for case in cases if case.nbytes >= REWRITTEN_NBYTES]
    if code == 0 and "rewritten" in tables and large:
        print(f"\n{REWRITTEN}\n")
        if args.json and "kept" in tables:
            args.json = args.json.with_stem(args.json.stem + "-rewritten")
        code = run(args, large, replace(limits, rewrites=True))
    return code


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command here takes."""
    parser.add_argument("--ranks", default="2,4", help="world sizes")
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--transport", choices=TRANSPORTS, default="auto")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes in each")
    parser.add_argument("--case-seconds", type=float, default=0.25, help="blocks of one case")
    parser.add_argument("--pin", action="store_true", help="rank r of every library to core r")
    parser.add_argument(
        "--most-others",
        type=float,
        metavar="CORES",
        help="a round does not count in which other processes used more",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")


def run(args: argparse.Namespace, cases: Sequence[Case], limits: Limits) -> int:
    """Measure, print, write; 0 unless our own library has no numbers."""
    # Turned into an exception, so that the ranks are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    machine = describe_machine()
    peers = [find_peer(name, args.transport) for name in args.libraries.split(",")]
    world_sizes = [int(text) for text in args.ranks.split(",")]
    try:
        result = compare(
            peers,
            cases,
            world_sizes,
            limits,
            rounds=args.rounds,
            cores=len(os.sched_getaffinity(0)),
            pin=args.pin,
            most_others=args.most_others,
        )
    except KeyboardInterrupt:
        print("interrupted; every rank was ended", file=sys.stderr)
        return 130
    print(format_report(machine, peers, result))
    if args.json:
        versions = {peer.name: peer.version for peer in peers}
        document = {"machine": machine, "versions": versions, "method": METHOD, **result.to_json()}
        args.json.write_text(json.dumps(document, indent=1) + "\n")
        print(f"Wrote {args.json}", file=sys.stderr)
    return 0


def format_report(machine: dict[str, str], peers: Sequence[Peer], result: Comparison) -> str:
    """Header with everything that a number needs beside it, then the table."""
    lines = [f"{name:<17} {value}" for name, value in machine.items()]
    for peer in peers:
        lines.append(f"{peer.name:<17} {peer.version}")
        own = [place for place in result.settings if place.startswith(f"{peer.name},")]
        lines += [f"  {place.partition(', ')[2]:<15} {result.settings[place]}" for place in own]
    lines += ["", METHOD, ""]
    measured = [row for row in result.rows if row.rounds]
    lines.append(
        format_table(measured, [peer.name for peer in peers]) if measured else "no results"
    )
    lines += ["", *_format_cores(measured)]
    for place, cores in result.others.items():
        said = ", ".join(f"{each:.1f}" for each in cores)
        lines.append(
            f"others: {place}: others, or the host of this machine, used {said} cores in the rounds"
        )
    lines += [f"gap: {place}: {reason}" for place, reason in result.gaps.items()]
    met, total = count_targets(measured)
    lines.append(f"targets: {met} of {total} met; took {result.took_s:.0f} s")
    return "\n".join(lines)


def _format_cores(rows: Sequence[Row]) -> list[str]:
    """How often all ranks were seen on different cores, where there are enough cores."""
    cores = len(os.sched_getaffinity(0))
    lines = []
    for library in dict.fromkeys(name for row in rows for name in row.cpus):
        fitting = [row for row in rows if row.world_size <= cores]
        seen = [places for row in fitting for places in row.cpus.get(library, [])]
        if seen:
            apart = sum(len(set(places)) == len(places) for places in seen)
            lines.append(
                f"cores: {library}: every rank on a core of its own in {apart} of {len(seen)} looks"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
