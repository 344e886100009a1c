"""The comparison itself: rounds over libraries, collected into rows; shared by the two commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.cases import Case
from benchmarks.launch import run_ranks
from benchmarks.machine import read_usage
from benchmarks.measure import Limits
from benchmarks.peers import Peer
from benchmarks.table import Row


@dataclass(slots=True)
class Comparison:
    """Rows in the order of the cases, and what went wrong."""

    rows: list[Row]
    gaps: dict[str, str] = field(default_factory=dict)
    """Library, or 'library, n ranks' -> why there is no number, or not every number."""
    settings: dict[str, str] = field(default_factory=dict)
    """'library, n ranks' -> how it was started."""
    others: dict[str, list[float]] = field(default_factory=dict)
    """'library, n ranks' -> for each round, how many cores other processes used meanwhile."""
    took_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "kind": row.case.kind,
                "nbytes": row.case.nbytes,
                "world_size": row.world_size,
                "median_s": row.medians(),
                "rounds_s": row.rounds,
                "cpus": row.cpus,
            }
            for row in self.rows
        ]
        return {
            "rows": rows,
            "gaps": self.gaps,
            "settings": self.settings,
            "others_cores": self.others,
            "took_s": self.took_s,
        }


def compare(
    peers: Sequence[Peer],
    cases: Sequence[Case],
    world_sizes: Sequence[int],
    limits: Limits,
    *,
    rounds: int,
    cores: int,
    pin: bool = False,
    most_others: float | None = None,
) -> Comparison:
    """Measure all; libraries take turns within a round, so that a drift hits all of them.

    Of a round in which other processes used more than `most_others` cores nothing is kept.
    """
    began = time.monotonic()
    rows = {(case, size): Row(case, size) for size in world_sizes for case in cases}
    result = Comparison(list(rows.values()))
    result.gaps.update({peer.name: peer.gap for peer in peers if peer.gap is not None})
    for round_number in range(1, rounds + 1):
        for world_size in world_sizes:
            for peer in peers:
                place = f"{peer.name}, {world_size} ranks"
                if peer.gap is not None or place in result.gaps:
                    continue
                _say(f"round {round_number}/{rounds}: {place}")
                start = peer.start(world_size, cores)
                result.settings[place] = start.settings
                before = read_usage()
                outcome = run_ranks(peer.name, start, world_size, cases, limits, pin=pin)
                others = read_usage().others_since(before)
                result.others.setdefault(place, []).append(others)
                if outcome.error is not None:
                    result.gaps[place] = outcome.error
                if most_others is not None and others > most_others:
                    continue
                for line in outcome.lines:
                    row = rows[Case(line["kind"], line["nbytes"]), world_size]
                    row.rounds.setdefault(peer.name, []).append(median(line["times_s"]))
                    row.cpus.setdefault(peer.name, []).append(line["cpus"])
    _say("")
    result.took_s = time.monotonic() - began
    return result


def _say(text: str) -> None:
    """One line of progress that replaces itself, only for a person who watches."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
