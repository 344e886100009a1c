"""A verdict in at most twelve lines: what a log, a launcher's report and a raised error have room for.

deadlock of ranks 0,1: ...                              the verdict
  rank 0 waits in recv from rank 1 at a.py:3 (run)      the cause, and where
  ranks 2-7 wait in all_reduce #9 at a.py:8 (run)       who waits because of it
  then: 6 ranks timed out                               consequences
  hint: send before you receive on one of them
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Role, Verdict
from distdbg.diagnose.session import Session
from distdbg.render.where import fold, waited_text
from distdbg.render.words import edge_text, evidence_text, fold_facts, ranks_text, safe

MAX_LINES: Final = 12
_MAX_BLAMED: Final = 5
_MAX_UNMET: Final = 2
_MAX_WAITING: Final = 2
_MAX_FOLLOWING: Final = 2


def short_lines(session: Session, verdict: Verdict) -> list[str]:
    """The verdict, who is to blame, who waits, what follows, and one hint; no markup."""
    lines = [verdict.what]
    root = verdict.root
    if root is not None:
        lines += _cut([*_blamed(session, root)], _MAX_BLAMED, "facts")
        lines += _cut([*_waiting(session, verdict, root)], _MAX_WAITING, "places")
        lines += _cut([f"then: {one.what}" for one in root.follows], _MAX_FOLLOWING, "findings")
    else:
        others = [f"{one.severity}: {one.what}" for one in verdict.findings]
        lines += _cut(others, _MAX_BLAMED, "findings")
        lines += _cut([f"missing: {text}" for text in verdict.lacks], _MAX_WAITING, "gaps")
    if root is not None and root.advice:
        lines.append(f"hint: {root.advice}")
    return [safe(lines[0]), *(f"  {safe(line)}" for line in lines[1:])]


def _blamed(session: Session, root: Finding) -> Iterator[str]:
    """What each rank to blame did: by the edges of a deadlock, the evidence, or where it is."""
    reported: set[int] = set()
    facts: list[str] = []
    if root.kind is FindingKind.DEADLOCK and root.edges:
        yield from _unmet(root)
        for edge in root.edges:
            if edge.rank in root.ranks or not set(root.ranks) & root.deadlocked:
                yield edge_text(edge)
        return
    for fact in root.evidence:
        if fact.rank is None or fact.rank in root.ranks:
            facts.append(evidence_text(fact))
            if fact.rank is not None:
                reported.add(fact.rank)
    said = root.what.replace(", at ", " at ")  # what the first line says already
    yield from (fact for fact in fold_facts(facts) if not said.startswith(fact))
    for where, ranks in fold(session, set(root.ranks) - reported):
        yield f"{ranks_text(ranks)}: {where}"


def _unmet(root: Finding) -> list[str]:
    """Calls that were meant for each other and never met, unless the first line has them."""
    facts = [fact for fact in root.evidence if len(fact.ranks) > 1]
    return [
        evidence_text(fact)
        for fact in facts[:_MAX_UNMET]
        if fact.text.partition(" at ")[0] not in root.what and not root.what.endswith(fact.text)
    ]


def _waiting(session: Session, verdict: Verdict, root: Finding) -> Iterator[str]:
    victims = set(root.victims) or {r for r, role in verdict.roles.items() if role is Role.VICTIM}
    for where, ranks in fold(session, victims - set(root.ranks)):
        verb = "wait" if len(ranks) > 1 else "waits"
        time = waited_text(session, ranks)
        since = f", for {time}" if time else ""
        is_in = where.startswith("in ")
        yield (
            f"{ranks_text(ranks)} {verb} {where}{since}"
            if is_in
            else f"{ranks_text(ranks)}: {where}"
        )


def _cut(lines: list[str], most: int, what: str) -> list[str]:
    """At most `most`, the last of which says how many are not there."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"... {len(lines) - most + 1} more {what}"]
