"""The text of an abort: why a person or the agent ends the job, as all ranks raise it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from distdbg.control.layout import MAX_ABORT_NBYTES
from distdbg.errors import JobAborted
from distdbg.record.printable import shorten

#: The kind of abort that a person writes.
STOPPED: Final = "stopped"
#: The author of a verdict: `AbortWords.by` where nobody else has written it.
AGENT: Final = "the agent"
_MAX_LINE = 400
_MAX_RANKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortWords:
    """What every rank raises; the facts of a JobAborted."""

    what: str
    """The first line: "rank 2 was killed (signal 9, SIGKILL)"."""
    type: str = STOPPED
    """The kind of finding: "dead rank", "deadlock", "stopped"."""
    ranks: Sequence[int] = ()
    """Those to blame."""
    details: Sequence[str] = ()
    hint: str = ""
    by: str = ""
    """The author: "the agent", "ada"."""

    def to_json(self) -> bytes:
        """ASCII that fits the page: the last details go first, then the hint."""
        facts: dict[str, Any] = {
            "type": _line(self.type, 40),
            "what": _line(self.what),
            "ranks": list(self.ranks)[:_MAX_RANKS],
            "by": _line(self.by, 80),
            "hint": _line(self.hint),
            "details": [_line(line) for line in self.details],
        }
        while len(text := json.dumps(facts).encode()) > MAX_ABORT_NBYTES:
            if facts["details"]:
                facts["details"].pop()
            elif facts["hint"]:
                facts["hint"] = ""
            else:  # letters that take six bytes each
                facts["what"] = shorten(facts["what"], len(facts["what"]) // 2)
                facts["by"] = facts["by"][: len(facts["by"]) // 2]
        return text

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Whatever can be read of them; a damaged page must not hide that the job is over."""
        try:
            facts = json.loads(text)
        except ValueError:
            facts = None
        if not isinstance(facts, Mapping):
            return cls(what="the reason cannot be read")
        ranks, details = facts.get("ranks"), facts.get("details")
        return cls(
            what=str(facts.get("what") or "no reason was given"),
            type=str(facts.get("type") or "stopped"),
            ranks=tuple(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else (),
            details=tuple(map(str, details)) if isinstance(details, list) else (),
            hint=str(facts.get("hint") or ""),
            by=str(facts.get("by") or ""),
        )


def to_error(
    words: AbortWords | bytes | str, *, kind: str = "", seq: int = -1, group: str = "", op: str = ""
) -> JobAborted:
    """The error of a rank; `op` is what it was in: "all_reduce #3 on group 'dp'"."""
    if not isinstance(words, AbortWords):
        words = AbortWords.from_json(words)
    by = f" by {words.by}" if words.by else ""
    doing = [f"this rank was in {op}"] if op else []
    return JobAborted(
        f"the job was aborted{by}: {words.what}",
        verdict=words.type,
        by=words.by,
        kind=kind,
        seq=seq,
        group=group,
        ranks=words.ranks,
        details=[*words.details, *doing],
        hint=words.hint or None,
    )


def _line(text: str, most: int = _MAX_LINE) -> str:
    return shorten(" ".join(str(text).split()), most)
