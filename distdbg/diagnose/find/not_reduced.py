"""Steps of a DDP model whose gradients were not reduced: the program called its `.module`, not the DDP.

Nothing fails then: each rank goes on with a model of its own. The watched rank writes down each such backward
pass (`torch_bridge.training`). A program that reduces by itself is left out: it has a collective between that
pass and the end of the step. One that averages parameters now and then means it, so this is a note.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import say_ranks
from distdbg.record.entries import MarkEntry
from distdbg.record.known_marks import NOT_REDUCED, STEP

PAST_FORWARD: Final = (
    "call the DDP object itself, not its .module: only its forward pass prepares the reduction"
)


class UnreducedSteps(NamedTuple):
    """The steps of one rank whose gradients were not reduced."""

    first: int
    steps: int
    names: str
    at_ns: int


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """Ranks that made the same steps without a reduction, as one note."""
    reported: dict[tuple[int, int], dict[int, UnreducedSteps]] = defaultdict(dict)
    for rank, log in session.ranks.items():
        if (found := unreduced_steps(log)) is not None:
            reported[found.first, found.steps][rank] = found
    return [_say(session, by_rank) for by_rank in reported.values()]


def unreduced_steps(log: RankLog) -> UnreducedSteps | None:
    """Return the steps of a rank that were not reduced; None where each was."""
    marks = [note for note in log.notes if isinstance(note, MarkEntry)]
    begun: MarkEntry | None = None
    found: list[MarkEntry] = []
    for one in marks:
        if (one.name or "").startswith(NOT_REDUCED):
            begun = begun or one
        elif one.name == STEP and begun is not None:
            if not _has_op_between(log, begun.issued_ns, one.issued_ns):
                found.append(begun)
            begun = None
    if not found:
        return None
    first = found[0]
    step = int(first.value) if first.value is not None else 0
    names = (first.name or "").removeprefix(NOT_REDUCED)
    return UnreducedSteps(step, len(found), names, first.issued_ns)


def _has_op_between(log: RankLog, begin_ns: int, end_ns: int) -> bool:
    issued = log.ops.issued_ns
    at = bisect_left(issued, begin_ns)
    return at < len(issued) and issued[at] < end_ns


def _say(session: Session, by_rank: Mapping[int, UnreducedSteps]) -> Finding:
    ranks = tuple(sorted(by_rank))
    first = by_rank[ranks[0]]
    at_ns = session.time_ns(ranks[0], first.at_ns)
    times = f"{first.steps} steps" if first.steps > 1 else "a step"
    return Finding(
        kind=FindingKind.DIVERGED,
        severity=Severity.NOTE,
        what=f"{say_ranks(ranks, 3)} made {times}, from step {first.first} on, whose gradients DDP did not "
        "reduce",
        ranks=ranks,
        at_ns=at_ns,
        evidence=(
            Evidence(
                text=f"rank {ranks[0]} gave gradients to {first.names} in step {first.first}, and the "
                "forward pass of its DDP had not run",
                rank=ranks[0],
                at_ns=at_ns,
            ),
        ),
        advice=PAST_FORWARD,
        numbers={"steps": first.steps},
    )
