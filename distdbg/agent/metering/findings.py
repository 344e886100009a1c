"""What the diagnosis finds, by kind: how many hold now, and how many there have ever been. Pure.

What follows from a finding is not counted beside it, nor are notes of what is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

_NOTE: Final = "note"
#: Notes of these kinds are of what ranks wait in now.
_WAITS: Final = ("stall", "missing rank")
#: What is remembered, so that a finding is not counted again with each verdict.
_MOST_KNOWN: Final = 4096


class FindingCounts:
    """Follows the verdicts of a job, start after start."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.blamed: tuple[tuple[int, str], ...] = ()
        """By the verdict that holds now: the ranks, and the kind of what they are blamed for."""
        self._known: dict[tuple[object, ...], None] = {}

    def take(self, attempt: int, verdict: Mapping[str, Any] | None) -> None:
        """A verdict as `verdict.json` has it; None: nothing is wrong."""
        now: Counter[str] = Counter()
        findings = verdict.get("findings") if verdict else None
        for finding in findings if isinstance(findings, list) else ():
            kind = str(finding.get("kind", ""))
            if finding.get("severity") == _NOTE and kind not in _WAITS:
                continue
            now[kind] += 1
            key = (
                attempt,
                kind,
                tuple(finding.get("ranks") or ()),
                finding.get("group"),
                finding.get("seq"),
            )
            if key not in self._known:
                self.total[kind] += 1
                self._known[key] = None
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self.now = now
        self.blamed = _blamed(verdict)


def _blamed(verdict: Mapping[str, Any] | None) -> tuple[tuple[int, str], ...]:
    try:
        root = verdict["findings"][verdict["verdict"]["root"]] if verdict else None
        return tuple((int(rank), str(root["kind"])) for rank in root["ranks"]) if root else ()
    except (KeyError, TypeError, IndexError, ValueError):
        return ()  # there is none, or nobody is to blame
