"""Messages of a launcher to its agent: one JSON object per line on its standard input. Pure.

{"order": "attempt", "number": 0, "folder": "...", "ranks": {"0": 4711}, "store": "tcp://h:p/agents",
 "nodes": 2}
{"order": "ended", "rank": 3, ...}       as `record.ends.RankEnd`
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdbg.record.ends import RankEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The ranks of this host were started, for the first time or anew."""

    number: int
    folder: Path
    pids: dict[int, int] = field(default_factory=dict)
    store: str = ""
    """Where the agents of the job's hosts meet; '' for a job of one host."""
    nodes: int = 1
    node_rank: int = 0
    addr: str = ""
    """Where the other hosts reach this one; '': found out."""


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """A rank ended, in the words of who started it."""

    end: RankEnd


Order = Attempt | ReportedEnd


def read_order(line: bytes) -> Order | None:
    """ValueError for what is none; None for an order of a later version."""
    words: Any = json.loads(line)
    if not isinstance(words, dict):
        raise ValueError("not an object")
    match words.get("order"):
        case "attempt":
            return _read_attempt(words)
        case "ended":
            return ReportedEnd(RankEnd.from_json(json.dumps(words)))
        case str():
            return None
        case _:
            raise ValueError("no 'order'")


def _read_attempt(words: dict[str, Any]) -> Attempt:
    try:
        return Attempt(
            number=int(words["number"]),
            folder=Path(str(words["folder"])),
            pids={int(rank): int(pid) for rank, pid in dict(words.get("ranks") or {}).items()},
            store=str(words.get("store") or ""),
            nodes=int(words.get("nodes") or 1),
            node_rank=int(words.get("node_rank") or 0),
            addr=str(words.get("addr") or ""),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"an attempt without {error}") from None
