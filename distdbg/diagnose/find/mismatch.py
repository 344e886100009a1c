"""Ranks that called different things: from what their check said, and from the columns themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from distdbg.diagnose.failures import Failure, failures_of
from distdbg.diagnose.finding import Edge, Evidence, Finding, Kind, Severity
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import fit, known_ns, say_op


def find(
    session: Session, matched: Matched, waits: Mapping[int, tuple[Edge, ...]]
) -> list[Finding]:
    return _said(session, matched)


def _said(session: Session, matched: Matched) -> list[Finding]:
    """One finding for all ranks that were told of one mismatch."""
    alike: dict[tuple[str, int, str], list[Failure]] = defaultdict(list)
    for errors in failures_of(session).values():
        for error in errors:
            if error.type == "MismatchError":
                alike[error.group, error.seq, error.what].append(error)
    return [_of_errors(session, matched, errors) for errors in alike.values()]


def _of_errors(session: Session, matched: Matched, errors: Sequence[Failure]) -> Finding:
    errors = sorted(errors, key=lambda e: (e.at_ns == NEVER, e.at_ns, e.rank))
    first = errors[0]
    members = {error.rank for error in errors}
    for index, group in enumerate(session.groups):
        if group.label == first.group:
            members |= set(matched.of(index).at(first.seq)) if first.seq else set()
    odd = set(first.named) if first.seq and set(first.named) < members else set()
    evidence = [
        Evidence(text=f"rank {e.rank} called {say_op(session, e.op)}", rank=e.rank, op=e.op)
        for e in errors[:4]
        if e.op is not None
    ]
    evidence += [Evidence(text=line) for line in first.details]
    went_on = all(error.went_on for error in errors)
    return Finding(
        kind=Kind.MISMATCH,
        severity=Severity.WARNING if went_on else Severity.ERROR,
        what=fit(first.what or "ranks called different things"),
        ranks=tuple(sorted(odd)),
        victims=tuple(sorted((members | set(first.named)) - odd)),
        group=first.group,
        seq=first.seq,
        at_ns=known_ns(first.at_ns),
        evidence=tuple(evidence),
        advice=first.hint,
    )
