"""Wording of findings from logs: their text, the ranks they name, and the line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.errors import format_ranks

MAX_EVIDENCE: Final = 12
#: What the lines of a job state, by shape.
Facts = dict[FactShape, list[LoggedFact]]


def make_finding(
    kind: FindingKind,
    what: str,
    facts: Sequence[LoggedFact],
    *,
    ranks: Iterable[int | None] = (),
    victims: Iterable[int] = (),
    seq: int = 0,
    group: str = "",
    severity: Severity = Severity.ERROR,
    advice: str = "",
    extra: Sequence[Evidence] = (),
) -> Finding:
    blamed = tuple(sorted({rank for rank in ranks if rank is not None}))
    times = [fact.line.wall_ns for fact in facts if fact.line.wall_ns is not None]
    return Finding(
        kind=kind,
        severity=severity,
        what=what,
        ranks=blamed,
        victims=tuple(sorted(set(victims) - set(blamed))),
        group=group,
        seq=seq,
        at_ns=min(times, default=None),
        evidence=(*extra, *(_evidence(fact) for fact in _once(facts)[:MAX_EVIDENCE])),
        advice=advice,
    )


def _evidence(fact: LoggedFact) -> Evidence:
    text = fact.text if fact.shape is not FactShape.MISMATCH else shorten(fact.text, 400)
    if fact.rank is not None and not text.startswith(("rank", "local")):
        text = f"rank {fact.rank}: {text}"
    if fact.is_first:
        text += " (the launcher saw it first)"
    return Evidence(
        text=text,
        rank=fact.rank,
        site=fact.site,
        at_ns=fact.line.wall_ns,
        source=fact.line.source,
    )


def _once(facts: Sequence[LoggedFact]) -> list[LoggedFact]:
    """Without the same words of the same rank again; the earliest first where times are known."""
    seen: Counter[tuple[int | None, str]] = Counter()
    kept = []
    for fact in facts:
        seen[fact.rank, fact.text] += 1
        if seen[fact.rank, fact.text] == 1:
            kept.append(fact)
    return kept


def say_who(facts: Sequence[LoggedFact], otherwise: str) -> str:
    return say_ranks({fact.rank for fact in facts if fact.rank is not None}) or otherwise


def say_ranks(ranks: Iterable[int]) -> str:
    known = set(ranks)
    if not known:
        return ""
    return f"rank{'s' if len(known) > 1 else ''} {format_ranks(known)}"


def shorten(text: str, most: int = 100) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
