"""Reads the JSON of `distdbg analyze --json` as a verdict: from an agent, a recording, a file. Pure.

Whoever wrote it may be older or newer than we are, or have been cut off. What is missing, or is not what it
should be, is empty; a finding of a kind that we do not know is kept, as `FindingKind.UNKNOWN`. The ops that
evidence and edges are about are in the session, which is not there: they have none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from distdbg.diagnose.finding import (
    Edge,
    Evidence,
    Finding,
    FindingKind,
    Role,
    Severity,
    Verdict,
)
from distdbg.diagnose.traits import FactKind, Trait

_KINDS: Final = {str(kind): kind for kind in FindingKind}
_SEVERITIES: Final = {str(severity): severity for severity in Severity}
_FACTS: Final = {str(kind): kind for kind in FactKind}
_ROLES: Final = {str(role): role for role in Role}
#: Consequences of consequences are read this deep.
_MAX_DEPTH: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Document = Mapping[str, Any]


def read_verdict(document: object) -> Verdict | None:
    """None for what is no such document; `null` is what an agent says while nothing is wrong."""
    if not isinstance(document, Mapping):
        return None
    read = [
        _finding(one, _MAX_DEPTH) if isinstance(one, Mapping) else None
        for one in _list(document, "findings")
    ]
    reported = document.get("verdict")
    head: Document = reported if isinstance(reported, Mapping) else {}
    at = head.get("root")
    return Verdict(
        what=_text(head, "what"),
        root=read[at] if type(at) is int and 0 <= at < len(read) else None,
        findings=tuple(one for one in read if one is not None),
        roles={
            one["rank"]: _ROLES[role]
            for one in _objects(document, "ranks")
            if _is_rank(one.get("rank")) and (role := _text(one, "role")) in _ROLES
        },
        lacks=tuple(one for one in _list(document, "lacks") if isinstance(one, str)),
    )


def _finding(item: Document, depth: int) -> Finding:
    numbers, seq = item.get("numbers"), item.get("seq")
    return Finding(
        kind=_KINDS.get(_text(item, "kind"), FindingKind.UNKNOWN),
        severity=_SEVERITIES.get(_text(item, "severity"), Severity.WARNING),
        what=_text(item, "what"),
        ranks=_ranks(item, "ranks"),
        victims=_ranks(item, "victims"),
        group=_text(item, "group"),
        seq=seq if type(seq) is int else 0,
        at_ns=_time_ns(item.get("at")),
        evidence=tuple(map(_evidence, _objects(item, "evidence"))),
        edges=tuple(_edge(one) for one in _objects(item, "edges") if _is_rank(one.get("rank"))),
        advice=_text(item, "advice"),
        numbers={
            str(name): value
            for name, value in (numbers.items() if isinstance(numbers, Mapping) else ())
            if type(value) in (int, float) and math.isfinite(value)
        },
        traits=frozenset(trait for trait in Trait if trait in _list(item, "traits")),
        follows=tuple(_finding(one, depth - 1) for one in _objects(item, "follows"))
        if depth
        else (),
    )


def _evidence(item: Document) -> Evidence:
    rank, ranks = item.get("rank"), _ranks(item, "ranks")
    return Evidence(
        text=_text(item, "text"),
        rank=rank if _is_rank(rank) else None,
        ranks=() if ranks == (rank,) else ranks,
        site=_text(item, "site"),
        at_ns=_time_ns(item.get("at")),
        source=_text(item, "source"),
        kind=_FACTS.get(_text(item, "kind")),
        detail=_text(item, "detail"),
    )


def _edge(item: Document) -> Edge:
    return Edge(
        rank=item["rank"],
        on=_ranks(item, "on"),
        is_any=item.get("is_any") is True,
        text=_text(item, "text"),
        site=_text(item, "site"),
        since_ns=_time_ns(item.get("since")),
    )


def _list(item: Document, key: str) -> list[Any]:
    found = item.get(key)
    return found if isinstance(found, list) else []


def _objects(item: Document, key: str) -> list[Document]:
    return [one for one in _list(item, key) if isinstance(one, Mapping)]


def _text(item: Document, key: str) -> str:
    found = item.get(key)
    return found if isinstance(found, str) else ""


def _ranks(item: Document, key: str) -> tuple[int, ...]:
    return tuple(filter(_is_rank, _list(item, key)))


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _time_ns(text: object) -> int | None:
    """Return a unix time, to the microsecond that was written."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return since // timedelta(microseconds=1) * 1000
