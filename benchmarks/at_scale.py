"""`python -m benchmarks.at_scale`: what plans take on up to 65,536 simulated ranks, and what that asks for.

Runs the plans that ranks would carry out on a simulated network (`distdbg.runtime.plan.timing`) and prints
the tables of docs/explanation/scale.md; with --svg FOLDER it writes the page's drawings too. Only the rate
of the store is measured on this machine.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import format_seconds
from benchmarks.curves import Curve, draw_curves
from benchmarks.table import align
from distdbg.cli.plan import topology_for
from distdbg.ops.call import Kind
from distdbg.record.text import format_nbytes
from distdbg.runtime.backends.shared_memory import channel_nbytes_for, slot_nbytes_for
from distdbg.runtime.plan.between.choose import choose
from distdbg.runtime.plan.between.estimate import estimate_s
from distdbg.runtime.plan.compare import ComparedProblem, bound_s, time_of
from distdbg.runtime.plan.layout import make_hosts
from distdbg.runtime.plan.problem import Topology
from distdbg.runtime.plan.timing import SimulatedFaults, Timing

#: Kind, bytes of a block, and up to how many ranks: much data means many messages to simulate.
CASES = (
    (Kind.BARRIER, 0, 65_536),
    (Kind.ALL_REDUCE, 8, 65_536),
    (Kind.ALL_REDUCE, 1 << 20, 65_536),
    (Kind.ALL_REDUCE, 64 << 20, 1024),
    (Kind.BROADCAST, 1 << 20, 65_536),
)
SIZES = (2, 8, 16, 64, 256, 1024, 4096, 16_384, 65_536)
RANKS_PER_HOST = 8

#: native/core/segment.hpp.
HEADER_NBYTES, RANK_NBYTES, LINE_NBYTES, BLOCK_NBYTES = 448, 192, 64, 16

#: Join, write one's address, wait for the others, read what rank 0 says of the group.
REQUESTS_PER_RANK = 4
#: TCP's handshake, and the proof of the token both ways.
ROUND_TRIPS_PER_CONNECTION = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One case on one number of ranks."""

    kind: Kind
    nbytes: int
    size: int
    algorithm: str
    timing: Timing
    bound_s: float
    topology: Topology


def topology_of(size: int) -> Topology:
    """Eight ranks on a host, but two hosts at least."""
    hosts = make_hosts(size, max(2, size // RANKS_PER_HOST))
    return topology_for(size, hosts)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.at_scale", description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of ranks")
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write the drawings")
    args = parser.parse_args(argv)
    lines = []
    begin_s = time.monotonic()
    print("## Time against the bound\n")
    for kind, nbytes, most in CASES:
        rows = [
            ["ranks", "hosts", "algorithm", "time", "bound", "over", "rounds", "messages", "sent"]
        ]
        for size in (size for size in SIZES if size <= min(most, args.most)):
            line = run_case(kind, nbytes, size)
            lines.append(line)
            rows.append(row_of(line))
        name = kind.label + (f" of {format_nbytes(nbytes)}" if nbytes else "")
        print(f"{name}\n{align(rows, left=(2,))}\n", flush=True)
    sizes = [size for size in SIZES if size <= args.most]
    print(f"## Memory and connections\n\n{align(memory_rows(sizes, lines), left=())}\n")
    print(f"## Start-up\n\n{align(start_rows(sizes, lines), left=())}\n")
    print(f"## Estimates against the simulation\n\n{align(estimate_rows(lines), left=(0, 1))}\n")
    print(
        f"## Troubles, all_reduce of 1 MiB\n\n{align(trouble_rows(min(1024, args.most)), left=(0,))}\n"
    )
    print(f"made in {time.monotonic() - begin_s:.0f} s")
    if args.svg is not None:
        write_drawings(args.svg, lines)
    return 0


def run_case(kind: Kind, nbytes: int, size: int) -> Line:
    topology = topology_of(size)
    question = ComparedProblem(kind=kind, nbytes=nbytes, topology=topology)
    name = "gate" if kind is Kind.BARRIER else choose(question.problem(0), topology)
    timing = time_of(question)
    return Line(kind, nbytes, size, name, timing, bound_s(kind, nbytes, topology), topology)


def row_of(line: Line) -> list[str]:
    timing = line.timing
    return [
        f"{line.size:,}",
        f"{len(line.topology.layout.hosts):,}",
        line.algorithm,
        format_seconds(timing.total_s),
        format_seconds(line.bound_s),
        f"{timing.total_s / line.bound_s:.2f}",
        str(timing.rounds),
        str(timing.messages),
        format_nbytes(timing.sent_nbytes),
    ]


def segment_nbytes(size: int) -> int:
    """The address space of a group's segment on each host."""
    slot = LINE_NBYTES + 2 * size * BLOCK_NBYTES + slot_nbytes_for(size)
    channels = size * size * channel_nbytes_for(size)
    return HEADER_NBYTES + size * RANK_NBYTES + 2 * size * slot + channels


def memory_rows(sizes: Sequence[int], lines: Sequence[Line]) -> list[list[str]]:
    """What a group takes of a rank and of a host; scratch memory is that of the ops of 1 MiB."""
    rows = [["ranks", "scratch", "peers", "headers touched", "segment", "bits"]]
    for size in sizes:
        here = [line.timing for line in lines if line.size == size and line.nbytes <= 1 << 20]
        segment = segment_nbytes(size)
        rows.append(
            [
                f"{size:,}",
                format_nbytes(max(timing.scratch_nbytes for timing in here)),
                str(max(timing.connections for timing in here)),
                format_nbytes(size * (RANK_NBYTES + 2 * 4096)),
                format_nbytes(segment),
                f"{math.log2(segment):.1f}",
            ]
        )
    return rows


def start_rows(sizes: Sequence[int], lines: Sequence[Line]) -> list[list[str]]:
    """Rendezvous through one store, and the connections of the first op."""
    request_s = measure_request_s()
    rows = [["ranks", "requests", "store", "first gate", "peers", "connecting"]]
    for size in sizes:
        here = [line for line in lines if line.size == size]
        peers = max(line.timing.connections for line in here)
        requests = size * (REQUESTS_PER_RANK + peers)
        [gate_s] = [line.timing.total_s for line in here if line.kind is Kind.BARRIER]
        latency_s = here[0].topology.link.latency_s
        rows.append(
            [
                f"{size:,}",
                f"{requests:,}",
                format_seconds(requests * request_s),
                format_seconds(gate_s),
                str(peers),
                format_seconds(peers * ROUND_TRIPS_PER_CONNECTION * 2 * latency_s),
            ]
        )
    rows.append(["", "", f"{format_seconds(request_s)} each", "", "", ""])
    return rows


def measure_request_s() -> float:
    """What one request takes on a store of this machine, one client asking."""
    import distdbg

    server = distdbg.TCPStore("127.0.0.1", 0, is_master=True)
    count, begin_s = 0, time.perf_counter()
    while time.perf_counter() - begin_s < 0.5:
        server.set("key", "v" * 16)
        server.get("key")
        count += 2
    return (time.perf_counter() - begin_s) / count


def estimate_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Whether what is chosen by would have told the same."""
    rows = [["kind", "algorithm", "ranks", "simulated", "estimated", "share"]]
    for line in lines:
        if line.kind is not Kind.BARRIER and line.nbytes > 8:
            estimated_s = estimate_s(line.kind, line.algorithm, line.nbytes, line.topology)
            rows.append(
                [
                    line.kind.label,
                    line.algorithm,
                    f"{line.size:,}",
                    format_seconds(line.timing.total_s),
                    format_seconds(estimated_s),
                    f"{estimated_s / line.timing.total_s:.2f}",
                ]
            )
    return rows


def trouble_rows(size: int) -> list[list[str]]:
    """One rank late, one host slow, one rank dead."""
    topology = topology_of(size)
    question = ComparedProblem(kind=Kind.ALL_REDUCE, nbytes=1 << 20, topology=topology)
    middle = size // 2
    well_s = time_of(question).total_s
    cases = {
        "none": SimulatedFaults(),
        "a rank 10 ms late": SimulatedFaults(late_s={middle: 10e-3}),
        "a host at a quarter of the rate": SimulatedFaults(
            slow_hosts={len(topology.hosts) // 2: 4.0}
        ),
        "a rank dead before it begins": SimulatedFaults(dead_s={middle: 0.0}),
        "a rank dead half way": SimulatedFaults(dead_s={middle: well_s / 2}),
    }
    rows = [["trouble", "ranks", "time", "ended", "wait for the dead", "wait for those that wait"]]
    for name, troubles in cases.items():
        timing = time_of(question, troubles=troubles)
        near = sum(middle in wait.on for wait in timing.waits) if troubles.dead_s else 0
        rows.append(
            [
                name,
                f"{size:,}",
                format_seconds(timing.total_s) if not timing.waits else "never",
                f"{len(timing.ends_s):,}",
                f"{near:,}" if timing.waits else "",
                f"{len(timing.waits) - near:,}" if timing.waits else "",
            ]
        )
    return rows


def write_drawings(folder: Path, lines: Sequence[Line]) -> None:
    """One drawing of times, one of connections and memory."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = []
    for kind, nbytes, _ in CASES:
        here = [line for line in lines if (line.kind, line.nbytes) == (kind, nbytes)]
        name = kind.label + (f" of {format_nbytes(nbytes)}" if nbytes else "")
        curves.append(Curve(name, [(line.size, line.timing.total_s * 1e6) for line in here]))
        bound = [(line.size, line.bound_s * 1e6) for line in here]
        curves.append(Curve(f"{name}: bound", bound, is_dashed=True))
    save(folder / "scale-times.svg", lambda: draw_curves("time in us", curves))
    sizes = sorted({line.size for line in lines})

    def most(of: Callable[[Timing], float]) -> list[tuple[float, float]]:
        return [
            (size, max(of(line.timing) for line in lines if line.size == size)) for size in sizes
        ]

    curves = [
        Curve("connections of a rank", most(lambda timing: timing.connections)),
        Curve("messages of a rank", most(lambda timing: timing.messages)),
        Curve("rounds", most(lambda timing: timing.rounds)),
    ]
    save(folder / "scale-connections.svg", lambda: draw_curves("count", curves))


def save(file: Path, draw: Callable[[], str]) -> None:
    file.write_text(draw())
    print(f"wrote {file}")


if __name__ == "__main__":
    raise SystemExit(main())
