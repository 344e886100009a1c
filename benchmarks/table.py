"""Results as text: a row per case, a column per library, ratios, targets met or missed; pure.

Targets are printed, never asserted: a benchmark that fails on a busy machine teaches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.cases import Case, format_seconds, format_size

OURS = "distdbg"

LARGE_NBYTES = 64 << 10
SMALL_NBYTES = 8
MOST_OPENMPI_RATIO = 2.0
#: Four ranks share two cores, and Open MPI's root or sender waits for nobody: no core changes its process.
MOST_OPENMPI_RATIO_UNASKED = 3.0
MOST_GLOO_SHARE = 1 / 30


@dataclass(slots=True)
class Row:
    """All that was measured of one case at one world size."""

    case: Case
    world_size: int
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Library -> the median over blocks of each round, in seconds per op."""
    cpus: dict[str, list[list[int]]] = field(default_factory=dict)
    """Library -> for each round the CPU of every rank."""

    def medians(self) -> dict[str, float]:
        return {library: median(times) for library, times in self.rounds.items() if times}

    def spread(self, library: str) -> float:
        """Slowest round over fastest round."""
        times = self.rounds[library]
        return max(times) / min(times)


def judge(case: Case, world_size: int, medians: Mapping[str, float]) -> list[tuple[str, bool]]:
    """The targets that this row has, each with whether it is met; none without our own time."""
    ours = medians.get(OURS)
    if ours is None:
        return []
    verdicts = []
    peers = {library: time for library, time in medians.items() if library != OURS}
    if case.nbytes >= LARGE_NBYTES and peers:
        fastest = min(peers, key=lambda library: peers[library])
        verdicts.append((f"faster than {'/'.join(peers)}", ours < peers[fastest]))
    if case.nbytes <= SMALL_NBYTES and "openmpi" in peers:
        is_unasked = world_size > 2 and case.kind in ("broadcast", "send_recv")
        most = MOST_OPENMPI_RATIO_UNASKED if is_unasked else MOST_OPENMPI_RATIO
        verdicts.append((f"at most {most:g}x openmpi", ours <= most * peers["openmpi"]))
    if case == Case("all_reduce", SMALL_NBYTES) and world_size == 2 and "gloo" in peers:
        met = ours <= MOST_GLOO_SHARE * peers["gloo"]
        verdicts.append((f"at most 1/{1 / MOST_GLOO_SHARE:g} of gloo", met))
    return verdicts


def format_row(row: Row, libraries: Sequence[str]) -> list[str]:
    """The cells of one line."""
    medians = row.medians()
    ours = medians.get(OURS)
    size = format_size(row.case.nbytes) if row.case.nbytes else ""
    cells = [row.case.kind, size]
    cells += [format_seconds(medians[name]) if name in medians else "-" for name in libraries]
    for name in libraries:
        if name != OURS:
            known = ours is not None and name in medians
            cells.append(f"{medians[name] / (ours or 1):.2f}x" if known else "-")
    cells.append(f"{row.spread(OURS):.1f}" if ours is not None else "-")
    verdicts = judge(row.case, row.world_size, medians)
    cells.append("; ".join(f"{'met' if met else 'MISSED'}: {what}" for what, met in verdicts))
    return cells


def format_table(rows: Sequence[Row], libraries: Sequence[str]) -> str:
    """One block for each world size."""
    head = ["kind", "size", *libraries]
    head += [f"vs {name}" for name in libraries if name != OURS]
    head += ["spread", "target"]
    blocks = []
    for world_size in sorted({row.world_size for row in rows}):
        chosen = [row for row in rows if row.world_size == world_size]
        lines = [head, *(format_row(row, libraries) for row in chosen)]
        blocks.append(f"{world_size} ranks\n{align(lines, left=(0, len(head) - 1))}")
    return "\n\n".join(blocks)


def align(lines: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Cells in columns; those of `left` begin at the left, others end at the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def count_targets(rows: Sequence[Row]) -> tuple[int, int]:
    """How many targets are met, and of how many."""
    verdicts = [met for row in rows for _, met in judge(row.case, row.world_size, row.medians())]
    return sum(verdicts), len(verdicts)
