"""Errors and findings that ranks wrote into their records, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RecordedProblem
from distdbg.record.entries import FindingEntry


def read_found(
    findings: Iterable[FindingEntry], errors: Iterable[tuple[int, str]]
) -> tuple[RecordedProblem, ...]:
    """The findings of a rank, and the errors of its ops (time and text) that no finding repeats."""
    found = []
    texts = set()
    for event in findings:
        texts.add(event.text)
        label = (event.group.desc or event.group.name) if event.group else ""
        found.append(to_found(event.text or "", at_ns=event.issued_ns, group=label, seq=event.seq))
    for at_ns, text in errors:
        if text not in texts:
            texts.add(text)
            found.append(to_found(text, at_ns=at_ns))
    return tuple(sorted(found, key=lambda one: one.at_ns))


def to_found(text: str, *, at_ns: int = NEVER, group: str = "", seq: int = 0) -> RecordedProblem:
    """The facts of one text; what is not JSON of ours is `what` as it is."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        return RecordedProblem(type="", what=text, at_ns=at_ns, group=group, seq=seq)
    return RecordedProblem(
        type=_word(facts, "type"),
        what=_word(facts, "what"),
        at_ns=at_ns,
        group=_word(facts, "group") or group,
        seq=_number(facts.get("seq")) or seq,
        kind=_word(facts, "kind"),
        ranks=tuple(n for n in _items(facts, "ranks") if type(n) is int),
        how=_word(facts, "how"),
        details=tuple(line for line in _items(facts, "details") if isinstance(line, str)),
        hint=_word(facts, "hint"),
    )


def _word(facts: dict[str, Any], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _items(facts: dict[str, Any], key: str) -> list[Any]:
    value = facts.get(key)
    return value if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if type(value) is int else 0
