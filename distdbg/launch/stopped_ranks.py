"""Which ranks are at the prompt of a debugger: of this host by the control page, of others by the agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distdbg.control import sockets
from distdbg.control.holds import OTHER_HOST, Hold

#: How often the agent is asked, and how long it may take: it is on this host, and never waits.
_ASK_S: Final = 1.0
_ANSWER_S: Final = 0.5
#: A launcher of that host may have a terminal of its own, and is closer.
_NOT_BEFORE_NS: Final = 1_500_000_000
#: What an agent says of when a rank stopped is no truer than this.
_DOUBT_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StoppedRank:
    rank: int
    since_ns: int
    is_elsewhere: bool = False

    def is_same(self, other: StoppedRank) -> bool:
        """Whether it is that stop, and not a later one of the same rank."""
        doubt_ns = _DOUBT_NS if self.is_elsewhere else 0
        return self.rank == other.rank and abs(self.since_ns - other.since_ns) <= doubt_ns


class StoppedRanks:
    """Asks and reads, as seldom as will do."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._asked_at = -_ASK_S
        self._elsewhere: list[StoppedRank] = []

    def find(self, holds: Sequence[Hold], agent: Path | None) -> list[StoppedRank]:
        """Those of this host first. `agent`: the socket of the one that knows all hosts, if it is here."""
        here = [StoppedRank(hold.rank, hold.since_ns) for hold in holds if hold.is_of_rank]
        if agent is None or not any(hold.rank == OTHER_HOST for hold in holds):
            self._elsewhere = []
            return here
        if time.monotonic() - self._asked_at >= _ASK_S:
            self._elsewhere = stops_elsewhere(_ask(agent), self._host, time.monotonic_ns())
            self._asked_at = time.monotonic()
        return here + self._elsewhere


def stops_elsewhere(rows: Iterable[dict[str, Any]], host: str, now_ns: int) -> list[StoppedRank]:
    """What the agent says of other hosts, but for those that have only just stopped. Pure."""
    found = []
    for row in rows:
        age_ns = int(row["since_s"] * 1e9)
        if row["host"] != host and age_ns >= _NOT_BEFORE_NS:
            found.append(StoppedRank(int(row["rank"]), now_ns - age_ns, is_elsewhere=True))
    return found


def _ask(agent: Path) -> list[dict[str, Any]]:
    """One question in the agent's own words: a launcher imports no observer."""
    with (
        suppress(OSError, ValueError, KeyError, TypeError),
        sockets.connect(agent, _ANSWER_S) as sock,
        sock.makefile("rwb") as lines,
    ):
        lines.readline()  # who it is
        lines.write(json.dumps({"id": 1, "do": "breakpoints"}).encode() + b"\n")
        lines.flush()
        return list(json.loads(lines.readline())["ok"]["stopped"])
    return []
