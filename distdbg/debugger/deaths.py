"""Deaths: tells the user at a prompt which other ranks have died meanwhile, from ends-<host>.jsonl."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from distdbg.debugger.desk import PromptInput
from distdbg.record.durations import age_text
from distdbg.record.ends import RankEnd, read_ends
from distdbg.record.printable import printable

_LOOK_S: Final = 0.5


class Deaths:
    """Each of them once."""

    def __init__(self, rank: int, folder: Callable[[], Path | None]) -> None:
        """`rank`: this one."""
        self._rank = rank
        self._folder = folder
        self._reported: set[tuple[int, int]] = set()
        self._next_s = 0.0

    def show(self, desk: PromptInput, notify: Callable[[str], None]) -> None:
        """Those that are new, if it is time to look and somebody is there, whom a line can be shown."""
        is_there = desk.mode == "line" and (bool(desk.client) or desk.has_own_terminal)
        if is_there and (text := self.read(time.monotonic())):
            notify(text)

    def read(self, now_s: float) -> str:
        """Lines about those that are new; '' most of the time. Looks twice a second."""
        if now_s < self._next_s:
            return ""
        self._next_s = now_s + _LOOK_S
        folder = self._folder()
        return "" if folder is None else self.report(read_ends(folder), time.time_ns())

    def report(self, ends: Iterable[RankEnd], wall_ns: int) -> str:
        """The deaths among these that are new. Pure but for what was told before."""
        lines = []
        for end in ends:
            if end.rank == self._rank or not end.is_failure or end.was_asked:
                continue
            if (end.rank, end.pid) not in self._reported:
                self._reported.add((end.rank, end.pid))
                age = age_text((wall_ns - end.wall_ns) / 1e9)
                lines.append(
                    f"*** rank {end.rank} {printable(end.how)} {age}; no other rank is "
                    "terminated while this one is at its prompt\n"
                )
        return "".join(lines)
