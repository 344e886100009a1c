"""Errors and findings from the records of ranks, and of the agent, in the order in which they were seen."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from distdbg.errors import RecordError
from distdbg.follow.roster import Roster
from distdbg.record.known_marks import SOURCE_DROPPED

#: More are counted, not kept.
_MAX: Final = 1000


class Findings:
    """What was found in one start of the job on this host."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []
        self._texts: dict[int, tuple[int, int]] = {}
        self.open_lines = 0
        """Lines that receive from any rank and drop the sender."""
        self.suspicions: Counter[int] = Counter()
        """By rank, what the agent has found itself."""

    def look(self, roster: Roster) -> list[dict[str, Any]]:
        """Take in what is new; returns it."""
        new: list[dict[str, Any]] = []
        for rank, watched in roster.watched_ranks.items():
            if watched.record is None or watched.pulse is None:
                continue
            pid, seen = self._texts.get(rank, (watched.pid, 0))
            if pid != watched.pid:
                seen = 0
            count = watched.pulse.text_count
            if count <= seen:
                continue
            self._texts[rank] = watched.pid, count
            try:
                texts = watched.record.texts(seen)
            except RecordError:
                continue
            read = [{"rank": rank, "number": n, **read_words(words)} for n, words in texts]
            # What only helps to judge other things is no finding.
            mine = [facts for facts in read if facts["type"] != SOURCE_DROPPED]
            self.open_lines += len(read) - len(mine)
            new += mine
        self._found += new[: max(0, _MAX - len(self._found))]
        return new

    def add(self, facts: dict[str, Any]) -> None:
        """The agent has found something itself."""
        self.suspicions[facts["rank"]] += 1
        if len(self._found) < _MAX:
            self._found.append(facts)

    def since(self, count: int) -> list[dict[str, Any]]:
        """All but the first so many."""
        return self._found[count:]


def read_words(text: str) -> dict[str, Any]:
    """The facts in one of them; text that is none is its own words."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        return {"type": "", "what": text}
    names = ("type", "what", "where", "kind", "seq", "group", "ranks", "how", "hint", "details")
    return {"type": "", "what": "", **{name: facts[name] for name in names if name in facts}}
