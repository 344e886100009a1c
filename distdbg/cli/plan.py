"""`distdbg plan`: how an op would be carried out on a group, and how long it would take."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from distdbg.cli.table import print_table
from distdbg.config import read_setting
from distdbg.count_argument import positive_count
from distdbg.errors import UsageError
from distdbg.export.output import SHARED, write_file
from distdbg.ops.call import Kind
from distdbg.record.text import format_nbytes
from distdbg.runtime.backends.shared_memory import slot_nbytes_for
from distdbg.runtime.plan.between.choose import names_for
from distdbg.runtime.plan.compare import (
    AlgorithmTiming,
    ComparedProblem,
    bound_s,
    compare,
    is_too_much,
    time_of,
)
from distdbg.runtime.plan.draw_passages import draw_passages
from distdbg.runtime.plan.layout import make_hosts
from distdbg.runtime.plan.link import NetworkLink
from distdbg.runtime.plan.names import NAMES
from distdbg.runtime.plan.overrides import Override, parse_overrides, parse_size
from distdbg.runtime.plan.problem import SLOTS_NBYTES, Topology

#: As the engine has it: so many slots full, one for each so many bytes of a slot, go through slots.
_ROUND_NBYTES = 4 << 10
_MAX_RANKS = 65_536
_HEADS = ("", "algorithm", "time", "rounds", "messages", "sent", "scratch", "peers")


def main(argv: Sequence[str]) -> int:
    """Print the chosen algorithm and the others; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="distdbg plan",
        description=__doc__,
        epilog="Rounds are messages of which each waits for the one before; messages, bytes, scratch memory "
        "and peers are the most that a rank has. ~ is an estimate: the plans are too long to be run.",
    )
    kinds = [kind.label for kind in (*NAMES, Kind.BARRIER)]
    parser.add_argument("kind", metavar="KIND", choices=kinds, help=", ".join(kinds))
    parser.add_argument(
        "--ranks", type=positive_count, required=True, metavar="N", help="of the group"
    )
    parser.add_argument(
        "--hosts", type=positive_count, default=1, metavar="H", help="that they are on (1)"
    )
    parser.add_argument(
        "--size",
        type=_size,
        default=1 << 20,
        metavar="SIZE",
        help="of a block: 8, 64KiB, 1MiB (1MiB)",
    )
    parser.add_argument("--root", type=int, default=0, metavar="R", help="a rank of the group (0)")
    parser.add_argument(
        "--algo", metavar="NAME", help="this one instead of the one that would be chosen"
    )
    parser.add_argument(
        "--latency-us", type=_positive, metavar="US", help="of a message between hosts (25)"
    )
    parser.add_argument(
        "--gbit", type=_positive, metavar="G", help="Gb/s of each host's network card (10)"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the messages over time")
    parser.add_argument("--force", action="store_true", help="replace FILE if it already exists")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    chosen = parser.parse_args(argv)
    question = _question(chosen)
    rows = compare(question)
    if chosen.svg is not None:  # first: where that fails nothing is printed
        picture = _draw(question, rows).encode()
        write_file(
            chosen.svg, lambda to: _put(to, picture), force=chosen.force, flag="--svg ", mode=SHARED
        )
    if chosen.json:
        sys.stdout.write(json.dumps(_to_plain(question, rows), indent=1) + "\n")
    else:
        _print(question, rows)
    if chosen.svg is not None:
        sys.stderr.write(f"Wrote {chosen.svg}\n")
    return 0


def _put(output: BinaryIO, picture: bytes) -> None:
    output.write(picture)


def _question(chosen: argparse.Namespace) -> ComparedProblem:
    kind = Kind[chosen.kind.upper()]
    if chosen.ranks > _MAX_RANKS:
        raise UsageError(f"--ranks is {chosen.ranks:,}; at most {_MAX_RANKS:,} are planned for")
    if chosen.hosts > chosen.ranks:
        raise UsageError(f"{chosen.ranks} ranks do not fit {chosen.hosts} hosts")
    if not 0 <= chosen.root < chosen.ranks:
        raise UsageError(f"--root is {chosen.root}; ranks are 0 to {chosen.ranks - 1}")
    if chosen.size % 4:
        raise UsageError(f"--size is {chosen.size}; elements have 4 bytes")
    link = NetworkLink()
    if chosen.latency_us is not None:
        link = replace(link, latency_s=chosen.latency_us * 1e-6)
    if chosen.gbit is not None:
        link = replace(link, byte_s=8 / (chosen.gbit * 1e9))
    hosts = make_hosts(chosen.ranks, chosen.hosts)
    overrides = parse_overrides(str(read_setting("DISTDBG_ALGO") or ""))
    topology = replace(topology_for(chosen.ranks, hosts), link=link, overrides=overrides)
    if chosen.algo is not None:
        known = names_for(kind, topology) if kind in NAMES and chosen.hosts > 1 else ()
        if chosen.algo not in known:
            names = ", ".join(known) or "no choice between hosts"
            raise UsageError(f"--algo is {chosen.algo!r}; {kind.label} has {names}")
        topology = replace(topology, overrides=(Override(kind=kind, algorithm=chosen.algo),))
    return ComparedProblem(kind=kind, nbytes=chosen.size, topology=topology, root=chosen.root)


def topology_for(size: int, hosts: tuple[tuple[int, ...], ...]) -> Topology:
    """A group as it would be made: its slots are the smaller the more ranks it has."""
    slot_nbytes = slot_nbytes_for(size)
    return Topology(
        single_copy=True,
        slot_nbytes=slot_nbytes,
        slots_nbytes=min(SLOTS_NBYTES, slot_nbytes // _ROUND_NBYTES * slot_nbytes),
        hosts=hosts,
    )


def _print(question: ComparedProblem, rows: Sequence[AlgorithmTiming]) -> None:
    layout = question.topology.layout
    [chosen] = [row for row in rows if row.is_chosen]
    title = _title(question, chosen.algorithm)
    cells = []
    for row in rows:
        line = ["*" if row.is_chosen else "", row.algorithm]
        timing = row.timing
        line.append(("" if timing or len(layout.hosts) == 1 else "~") + _seconds(row.time_s))
        if timing is None:
            line += [""] * 5
        else:
            line += [f"{timing.rounds:,}", f"{timing.messages:,}"]
            line += [format_nbytes(timing.sent_nbytes), format_nbytes(timing.scratch_nbytes)]
            line.append(f"{timing.connections:,}")
        cells.append(line)
    print_table(title, _HEADS, cells)
    if len(layout.hosts) > 1:
        bound = bound_s(question.kind, question.nbytes, question.topology)
        sys.stdout.write(f"no algorithm takes less than {_seconds(bound)} on these links\n")


def _title(question: ComparedProblem, algorithm: str) -> str:
    layout = question.topology.layout
    size = "" if question.kind is Kind.BARRIER else f" of {format_nbytes(question.nbytes)}"
    hosts = len(layout.hosts)
    ranks = f"{layout.size:,} rank{'s' * (layout.size > 1)}"
    where = f"{ranks} on {hosts:,} host{'s' * (hosts > 1)}"
    return f"{question.kind.label}{size}, {where}: {algorithm}"


def _draw(question: ComparedProblem, rows: Sequence[AlgorithmTiming]) -> str:
    [chosen] = [row.algorithm for row in rows if row.is_chosen]
    hosts = question.topology.layout.hosts
    if len(hosts) < 2:
        raise UsageError("--svg draws messages between hosts; there is one host")
    if is_too_much(question, chosen):
        raise UsageError(f"--svg: the plans of {question.size:,} ranks are too long to be drawn")
    timing = time_of(question, keep_passages=True)
    return draw_passages(timing, hosts, _title(question, chosen))


def _to_plain(question: ComparedProblem, rows: Sequence[AlgorithmTiming]) -> dict[str, object]:
    layout = question.topology.layout
    plain: list[dict[str, object]] = []
    for row in rows:
        facts: dict[str, object] = {
            "algorithm": row.algorithm,
            "chosen": row.is_chosen,
            "time_s": row.time_s,
            "simulated": row.timing is not None,
        }
        if row.timing is not None:
            facts |= {
                "rounds": row.timing.rounds,
                "messages": row.timing.messages,
                "sent_nbytes": row.timing.sent_nbytes,
                "scratch_nbytes": row.timing.scratch_nbytes,
                "peers": row.timing.connections,
            }
        plain.append(facts)
    several = len(layout.hosts) > 1
    bound = bound_s(question.kind, question.nbytes, question.topology) if several else None
    return {
        "kind": question.kind.label,
        "nbytes": question.nbytes,
        "ranks": layout.size,
        "hosts": len(layout.hosts),
        "root": question.root,
        "bound_s": bound,
        "algorithms": plain,
    }


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError("must be positive")
    return value


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
