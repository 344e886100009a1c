"""Events of a launcher as JSON lines: --event-log-handler console. Pure: clock and sink are given.

{"event": "start", "wall_ns": 1, "run": "...", "attempt": 0, "world_size": 4, "pids": {"0": 4711}, ...}
{"event": "end", "wall_ns": 2, "rank": 0, "exit_code": 3, ...}        as in ends-<host>.jsonl
{"event": "restart", "wall_ns": 3, "reason": "rank 0 exited with code 3", "used": 1, "of": 2}
{"event": "done", "wall_ns": 4, "exit_code": 0}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

Event = Literal["start", "end", "restart", "done"]


class EventLog:
    """Writes a line for each event, or nothing."""

    def __init__(
        self, handler: str, write: Callable[[str], None], now_ns: Callable[[], int]
    ) -> None:
        self._write = write if handler == "console" else None
        self._now_ns = now_ns

    def write_event(self, event: Event, **facts: object) -> None:
        """One event; facts are what JSON can say."""
        if self._write is not None:
            wall_ns = {"wall_ns": self._now_ns()}
            self._write(json.dumps({"event": event, **wall_ns, **facts}))
