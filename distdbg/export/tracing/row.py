"""What followers share, and an op as its events tell it, before anything of it is looked up.

To look an op up costs as much as all else that is done for it, and most ops of a program are like others: the
spans of one that differs in numbers and times alone are made by those of another (`SimilarOps`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from distdbg.export.otel.recorded_ops import Context, OpFacts, TracedGroup
from distdbg.export.otel.sampling import Budget, Sampler, SamplingDecision
from distdbg.export.tracing.head import Head
from distdbg.export.tracing.tail import TailSampler
from distdbg.export.tracing.trace_events import Made
from distdbg.follow.tail import TailedRecord
from distdbg.record.slices import ENDED_WELL, Slice

_MAX: Final = 256
#: What ops have in common: the words of their events that are equal, and the block around them.
Similarity = tuple[bytes, str]


@dataclass(slots=True)
class SharedTraceState:
    """What all followers of a host have together."""

    sampler: Sampler
    head: Head
    tail: TailSampler
    budget: Budget
    tail_budget: Budget
    slow_ns: int
    made: Made = field(default_factory=Made)
    """What they have made since it was taken last."""
    ranks: frozenset[int] = frozenset()
    """Those that are followed: a collective will have a span of each, as a rule."""
    made_ns: int = 0
    """CPU time of this thread for ops that were kept: a budget bounds how many these are."""
    unsampled: int = 0
    missed: int = 0
    dropped: int = 0

    def pay(self, budget: Budget, trace_id: int, bound: int, cost: int = 1) -> SamplingDecision:
        """Ask a budget for a trace; an op or a block that it does not take is counted."""
        verdict = budget.decide(trace_id, bound, cost)
        self.unsampled += verdict is SamplingDecision.LEFT_OUT
        self.dropped += verdict is SamplingDecision.NO_ROOM
        return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What the trace of a message depends on; `peer` -1: from any."""

    group: TracedGroup
    number: int
    """The number of the group in the record."""
    kind: str
    peer: int
    tag: int
    seq: int


@dataclass(slots=True)
class Row:
    """An op as far as its words tell, before anything is looked up."""

    number: int
    trace_id: int
    why: str = ""
    """The reason of the head or the tail; '' when only its end can be one."""
    message: int | None = None
    sent: Message | None = None
    key: tuple[str, int] | None = None
    """What the tail knows it by; None: of this rank alone."""
    is_wide: bool = False
    """Whether ranks of other hosts were in it."""
    context: Context | None = None
    region: str = ""


class SimilarOps:
    """One op of each kind of ops whose spans differ in numbers and times alone."""

    def __init__(self) -> None:
        self._known: dict[Similarity, OpFacts] = {}

    def of(self, similarity: Similarity) -> OpFacts | None:
        return self._known.get(similarity)

    def keep(self, similarity: Similarity, op: OpFacts) -> None:
        """An op that was looked up."""
        if len(self._known) >= _MAX:
            self._known.clear()
        self._known[similarity] = op


def similarity_of(row: Row, part: Slice | None, at: int) -> Similarity | None:
    """What similar ops have in common with one that the head keeps and that ended well; None: it is none."""
    if (
        part is None
        or row.key is None
        or not row.key[0]
        or row.why != "head"
        or row.context is not None
        or part.outcomes[at] != ENDED_WELL
    ):
        return None
    return part.sort(at), row.region


class Groups:
    """By their numbers in the record."""

    def __init__(self, record: TailedRecord) -> None:
        self._record = record
        self._known: dict[int, TracedGroup] = {}

    def __getitem__(self, number: int) -> TracedGroup:
        """What is known of it; nothing, when the record has no such group any more."""
        facts = self._known.get(number)
        if facts is None:
            group = self._record.group(number)
            if group is None:
                return TracedGroup()
            facts = self._known[number] = TracedGroup.of(group)
        return facts

    def number_of(self, name: str) -> int | None:
        """The number of a group whose ops were seen."""
        return next((n for n, facts in self._known.items() if facts.name == name), None)
