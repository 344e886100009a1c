"""`python -m benchmarks.shared_arrays`: ops on shared arrays, beside the peers and the machine's own copy.

Columns: distdbg on shared arrays, the same on ordinary ones, the peers on theirs, and the machine's copy: all
ranks copy a NumPy array of the size at once, in the same run and processes. `of copy`: what the copy takes
for as many bytes as the op has to move, over what the op took. It has to read each byte of the inputs, and to
write each byte of the outputs, once. Targets: 80 % of that, and 1.5 times as fast as the best peer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cases import Case, format_seconds, format_size, parse_size
from benchmarks.compare import Comparison, compare
from benchmarks.machine import describe_machine
from benchmarks.measure import Limits
from benchmarks.peers import LIBRARIES, find_peer
from benchmarks.table import Row, align

KINDS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter")
SUBJECTS = ("shared", *LIBRARIES)
PEERS = tuple(name for name in LIBRARIES if name != "distdbg")
LEAST_SHARE = 0.8
LEAST_SPEEDUP = 1.5


def must_move(kind: str, world_size: int) -> float:
    """Bytes that an op of all ranks reads and writes at least, beside those of copies of its size on all."""
    read, written = {
        "all_reduce": (world_size, world_size),
        "broadcast": (1, world_size - 1),
        "all_gather": (1, world_size),
        "reduce_scatter": (world_size, 1),
    }[kind]
    return (read + written) / (2 * world_size)


def share_of_copy(row: Row, copies: Mapping[tuple[int, int], float]) -> float | None:
    """What the copy would take for the bytes of the op, over what the op took in shared arrays."""
    took_s, copy_s = row.medians().get("shared"), copies.get((row.world_size, row.case.nbytes))
    if took_s is None or copy_s is None:
        return None
    return copy_s * must_move(row.case.kind, row.world_size) / took_s


def speedup(row: Row) -> float | None:
    """The best peer's time over ours."""
    medians = row.medians()
    peers = [medians[name] for name in PEERS if name in medians]
    return min(peers) / medians["shared"] if peers and "shared" in medians else None


def copies_of(rows: Sequence[Row]) -> dict[tuple[int, int], float]:
    """By ranks and size the time of the machine's copy, in the processes that have shared arrays too."""
    return {
        (row.world_size, row.case.nbytes): row.medians()["shared"]
        for row in rows
        if row.case.kind == "copy" and "shared" in row.medians()
    }


def format_report(rows: Sequence[Row], subjects: Sequence[str]) -> str:
    """One block for each number of ranks."""
    copies = copies_of(rows)
    head = ["kind", "size", *subjects, "copy", "of copy", "vs best peer"]
    blocks = []
    for world_size in sorted({row.world_size for row in rows}):
        lines = [head]
        for row in rows:
            if row.world_size != world_size or row.case.kind == "copy":
                continue
            medians = row.medians()
            copy_s = copies.get((world_size, row.case.nbytes))
            share, times = share_of_copy(row, copies), speedup(row)
            lines.append(
                [
                    row.case.kind,
                    format_size(row.case.nbytes),
                    *(format_seconds(medians[n]) if n in medians else "-" for n in subjects),
                    "-" if copy_s is None else format_seconds(copy_s),
                    "-" if share is None else f"{share:.0%}{_mark(share >= LEAST_SHARE)}",
                    "-" if times is None else f"{times:.2f}x{_mark(times >= LEAST_SPEEDUP)}",
                ]
            )
        blocks.append(f"{world_size} ranks\n{align(lines)}")
    return "\n\n".join(blocks)


def _mark(is_met: bool) -> str:
    return "" if is_met else " MISSED"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_arrays", description=__doc__)
    parser.add_argument("--ranks", default="2,4", help="world sizes")
    parser.add_argument("--sizes", default="1MiB,8MiB,64MiB")
    parser.add_argument("--libraries", default=",".join(SUBJECTS))
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes in each")
    parser.add_argument("--case-seconds", type=float, default=0.15, help="blocks of one case")
    parser.add_argument(
        "--most-others",
        type=float,
        metavar="CORES",
        help="a round does not count in which other processes used more",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sizes = [parse_size(text) for text in args.sizes.split(",")]
    cases = [Case(kind, nbytes) for kind in ("copy", *KINDS) for nbytes in sizes]
    machine = describe_machine()
    subjects = args.libraries.split(",")
    result: Comparison = compare(
        [find_peer(name) for name in subjects],
        cases,
        [int(text) for text in args.ranks.split(",")],
        Limits(case_s=args.case_seconds),
        rounds=args.rounds,
        cores=len(os.sched_getaffinity(0)),
        most_others=args.most_others,
    )
    print("\n".join(f"{name:<17} {value}" for name, value in machine.items()))
    print()
    print(format_report(result.rows, subjects))
    for place, reason in result.gaps.items():
        print(f"gap: {place}: {reason}")
    for place, cores in result.others.items():
        print(f"others: {place}: {', '.join(f'{each:.1f}' for each in cores)} cores in the rounds")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, **result.to_json()}, indent=1) + "\n")
        print(f"Wrote {args.json}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
