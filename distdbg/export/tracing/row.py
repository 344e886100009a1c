"""What followers have together, and an op as far as its words tell, before anything of it is looked up."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdbg.export.otel.recorded_ops import Context, TracedGroup
from distdbg.export.otel.sampling import Budget, Sampler, SamplingDecision
from distdbg.export.tracing.head import Head
from distdbg.export.tracing.tail import TailSampler
from distdbg.export.tracing.trace_events import Made


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
    """Of a message what its trace depends on; `peer` -1: from any."""

    group: TracedGroup
    number: int
    """Of the group, in the record."""
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
    """Of the head or the tail; '' when only its end can be a reason."""
    message: int | None = None
    sent: Message | None = None
    key: tuple[str, int] | None = None
    """What the tail knows it by; None: of this rank alone."""
    is_wide: bool = False
    """Whether ranks of other hosts were in it."""
    context: Context | None = None
    region: str = ""
