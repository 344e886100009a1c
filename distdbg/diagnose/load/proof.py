"""The deadlock that an agent proved while the job ran, from verdict.json in the run's folder.

The records of a finished job do not always hold the proof: a wait for an op begun earlier is not recorded
once it has ended. Everything else in verdict.json is found anew from the records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.traits import FactKind, Trait
from distdbg.record.folders import VERDICT_NAME

_MOST_NBYTES: Final = 1 << 24
_MOST_EACH: Final = 1 << 10


def read_proofs(folders: Iterable[Path]) -> list[Finding]:
    """The deadlocks of these folders; what cannot be read is left out."""
    found: dict[tuple[int, ...], Finding] = {}
    for folder in folders:
        for finding in _deadlocks(_load(folder / VERDICT_NAME)):
            found.setdefault(finding.ranks, finding)
    return list(found.values())


def _load(path: Path) -> object:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_NBYTES + 1)
        return json.loads(text) if len(text) <= _MOST_NBYTES else None
    except (OSError, ValueError, RecursionError):
        return None


def _deadlocks(document: object) -> Iterator[Finding]:
    for item in _dicts(document, "findings"):
        what, ranks = _text(item, "what"), _ranks(item, "ranks")
        if item.get("kind") != FindingKind.DEADLOCK or not what or not ranks:
            continue
        yield Finding(
            kind=FindingKind.DEADLOCK,
            severity=Severity.ERROR,
            what=what,
            ranks=ranks,
            victims=_ranks(item, "victims"),
            group=_text(item, "group"),
            at_ns=_time_ns(item.get("at")),
            evidence=tuple(
                Evidence(
                    text=_text(fact, "text"),
                    rank=next(iter(_ranks(fact, "ranks")), None),
                    ranks=_ranks(fact, "ranks"),
                    site=_text(fact, "site"),
                    at_ns=_time_ns(fact.get("at")),
                    source=VERDICT_NAME,
                    kind=next((k for k in FactKind if k == fact.get("kind")), None),
                    detail=_text(fact, "detail"),
                )
                for fact in _dicts(item, "evidence")
                if _text(fact, "text")
            ),
            edges=tuple(
                Edge(
                    rank=edge["rank"],
                    on=_ranks(edge, "on"),
                    is_any=edge.get("is_any") is True,
                    text=_text(edge, "text"),
                    site=_text(edge, "site"),
                    since_ns=_time_ns(edge.get("since")),
                )
                for edge in _dicts(item, "edges")
                if _is_rank(edge.get("rank"))
            ),
            advice=_text(item, "advice"),
            traits=frozenset(t for t in Trait if t in _words(item, "traits")),
        )


def _dicts(item: object, key: str) -> list[dict[str, Any]]:
    values = item.get(key) if isinstance(item, dict) else None
    if not isinstance(values, list):
        return []
    return [value for value in values[:_MOST_EACH] if isinstance(value, dict)]


def _words(item: dict[str, Any], key: str) -> list[object]:
    values = item.get(key)
    return values[:_MOST_EACH] if isinstance(values, list) else []


def _ranks(item: dict[str, Any], key: str) -> tuple[int, ...]:
    values = item.get(key)
    return tuple(filter(_is_rank, values)) if isinstance(values, list) else ()


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _text(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""


def _time_ns(text: object) -> int | None:
    if not isinstance(text, str):
        return None
    with suppress(ValueError, OverflowError, OSError):
        seconds = datetime.fromisoformat(text).timestamp()
        return int(seconds * 1e9) if math.isfinite(seconds) else None
    return None
