"""All algorithms for one call side by side: what each would take, by its plans where there are not too many.

Pure: for `distdbg plan` and for the page on scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from distdbg.ops.call import Kind
from distdbg.runtime.plan.between.choose import choose, names_for, plan_by_name
from distdbg.runtime.plan.between.estimate import estimate_s
from distdbg.runtime.plan.make import make_plan
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology, uniform_problem
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind
from distdbg.runtime.plan.timing import SimulatedFaults, Timing, time_plans

#: How many times the bytes of all blocks pass a card, by the share that other hosts have.
_PASSES: dict[Kind, Callable[[float], float]] = {
    Kind.ALL_REDUCE: lambda others: 2 * others,
    Kind.BROADCAST: lambda others: 1.0,
    Kind.REDUCE: lambda others: 1.0,
    Kind.ALL_GATHER: lambda others: others,
    Kind.GATHER: lambda others: others,
    Kind.SCATTER: lambda others: others,
    Kind.REDUCE_SCATTER: lambda others: others,
    Kind.ALL_TO_ALL: lambda others: others,
    Kind.BARRIER: lambda others: 0.0,
}


#: How many ranks beside root stand for all of a group that is too large to plan for each.
_SAMPLES: Final = 4


#: Above so many messages of all ranks a plan is not run, only estimated.
MAX_MESSAGES = 300_000

#: Algorithms whose messages grow with the number of hosts, not with its binary digits.
_LINEAR = frozenset({"ring", "pairwise", "linear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmTiming:
    """One algorithm; `timing` is None where only the time was estimated."""

    algorithm: str
    is_chosen: bool
    time_s: float
    timing: Timing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProblem:
    """A call on a group whose blocks all have one size."""

    kind: Kind
    nbytes: int
    topology: Topology
    root: int = 0
    itemsize: int = 4

    @property
    def size(self) -> int:
        """How many ranks."""
        return self.topology.layout.size

    def problem(self, rank: int) -> Problem:
        """The problem of a rank."""
        return uniform_problem(
            self.kind, rank, self.size, self.nbytes, root=self.root, itemsize=self.itemsize
        )


def is_too_much(question: ComparedProblem, name: str) -> bool:
    """Whether running the plans of all ranks would take long."""
    layout, kind = question.topology.layout, question.kind
    hosts = len(layout.hosts)
    algorithm, _ = split_name(name)
    each = 4 * hosts.bit_length()
    if algorithm in _LINEAR:
        each = 2 * hosts
    if algorithm == "slots" or kind is Kind.BARRIER:
        each = 2
    if blocks_of(kind, question.size) > 1:
        # Every rank has to look at every block.
        each = max(each, question.size)
    return layout.size * each > MAX_MESSAGES


def time_of(
    question: ComparedProblem,
    name: str | None = None,
    *,
    troubles: SimulatedFaults | None = None,
    keep_passages: bool = False,
) -> Timing:
    """Run the plans of one algorithm, or of the one that is chosen."""
    return time_plans(
        question.problem,
        question.topology,
        make_plan if name is None else lambda p, t: plan_by_name(p, t, name),
        troubles=troubles,
        keep_passages=keep_passages,
    )


def compare(question: ComparedProblem) -> list[AlgorithmTiming]:
    """The algorithms from the fastest to the slowest."""
    topology, kind = question.topology, question.kind
    if len(topology.layout.hosts) < 2:
        name = make_plan(question.problem(0), topology).algorithm
        seconds = predict_sampled_s(
            lambda rank: make_plan(question.problem(rank), topology),
            question.size,
            Cost(cores=question.size),
            root=question.root,
        )
        return [AlgorithmTiming(algorithm=name, is_chosen=True, time_s=seconds)]
    if kind is Kind.BARRIER:
        timing = time_of(question)
        return [
            AlgorithmTiming(algorithm="gate", is_chosen=True, time_s=timing.total_s, timing=timing)
        ]
    chosen = choose(question.problem(0), topology)
    rows = []
    for name in names_for(kind, topology):
        if name == "bruck" and kind is Kind.ALL_TO_ALL and not _is_even(topology):
            continue
        if is_too_much(question, name):
            total = question.nbytes * blocks_of(kind, question.size)
            seconds = estimate_s(kind, name, total, topology)
            rows.append(AlgorithmTiming(algorithm=name, is_chosen=name == chosen, time_s=seconds))
            continue
        timing = time_of(question, name)
        rows.append(
            AlgorithmTiming(
                algorithm=name, is_chosen=name == chosen, time_s=timing.total_s, timing=timing
            )
        )
    return sorted(rows, key=lambda row: row.time_s)


def _is_even(topology: Topology) -> bool:
    return topology.layout.lanes == topology.layout.largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the elementary things cost on one host."""

    cores: int = 2
    #: A gate: in itself, more per rank, and more per rank beyond the cores (a switch of context).
    gate_s: float = 0.2e-6
    gate_rank_s: float = 0.05e-6
    gate_switch_s: float = 2e-6
    #: Reading an array of another process: the system call, and each byte through the kernel.
    read_s: float = 0.6e-6
    read_byte_s: float = 1 / 8e9
    copy_byte_s: float = 1 / 10e9
    #: Per byte read by a fold, so n times the bytes it writes.
    fold_byte_s: float = 1 / 12e9


def _step_s(step: Step, size: int, cost: Cost) -> float:
    """What one step costs its rank; gates aside."""
    is_remote_array = step.src is not Space.SLOT
    match step.kind:
        case StepKind.GATE | StepKind.HOST_GATE | StepKind.SEND | StepKind.RECV:
            # What goes between hosts is timed by `distdbg.runtime.plan.timing`.
            return 0.0
        case StepKind.COPY | StepKind.DIVIDE:
            return step.nbytes * cost.copy_byte_s
        case StepKind.FOLD_AFTER | StepKind.FOLD_BEFORE:
            return 2 * step.nbytes * cost.fold_byte_s
        case StepKind.PULL:
            if is_remote_array:
                return cost.read_s + step.nbytes * cost.read_byte_s
            return step.nbytes * cost.copy_byte_s
        case StepKind.FOLD_ALL | StepKind.FOLD_HOST:
            fold_s = size * step.nbytes * cost.fold_byte_s
            if is_remote_array:
                fold_s += (size - 1) * (cost.read_s + step.nbytes * cost.read_byte_s)
            return fold_s
        case StepKind.FOLD_TO:
            written = (size if step.peer < 0 else 1) - 1
            return step.nbytes * (size * cost.fold_byte_s + written * cost.copy_byte_s)
        case StepKind.PUSH:
            return step.nbytes * cost.copy_byte_s
        case StepKind.SPREAD:
            return step.nbytes * cost.copy_byte_s * size
        case StepKind.EXCHANGE:
            return (size - 1) * cost.read_s + step.nbytes * cost.read_byte_s


def segment_costs_s(plan: Plan, size: int, cost: Cost) -> list[float]:
    """The cost of a rank's steps before the first gate, between gates, and after the last."""
    segments = [0.0]
    for step in plan.steps:
        segments[-1] += _step_s(step, size, cost)
        # An exchange ends with a gate of its own.
        if step.kind in (StepKind.GATE, StepKind.EXCHANGE):
            segments.append(0.0)
    return segments


def predict_s(plans: Sequence[Plan], cost: Cost) -> float:
    """How long the plans of all ranks of a group take together.

    Between two gates a segment takes as long as its busiest rank, or as long as the cores need for the work
    of all ranks. A gate costs more for each rank, and much more for each that has to wait for a core. The
    numbers are of the order of the machine: compare predictions with each other, not with a clock.
    """
    return _combine([(plan, 1) for plan in plans], len(plans), cost)


def predict_sampled_s(
    plan_of: Callable[[int], Plan], size: int, cost: Cost, *, root: int = 0
) -> float:
    """The same for a group too large to plan for every rank: root and a few others are planned.

    Every plan but root's stands for as many ranks as there are between two samples, so that the
    cost of the prediction grows with the steps of a plan only.
    """
    if size <= _SAMPLES + 1:
        return predict_s([plan_of(rank) for rank in range(size)], cost)
    others = size - 1
    picks = [others * i // _SAMPLES for i in range(_SAMPLES + 1)]
    weighted = [(plan_of(root), 1)]
    for begin, end in pairwise(picks):
        weighted.append((plan_of((root + 1 + begin) % size), end - begin))
    return _combine(weighted, size, cost)


def _combine(weighted: Sequence[tuple[Plan, int]], size: int, cost: Cost) -> float:
    rows = [(segment_costs_s(plan, size, cost), weight) for plan, weight in weighted]
    waiting = max(0, size - cost.cores)
    gate_s = cost.gate_s + size * cost.gate_rank_s + waiting * cost.gate_switch_s
    gates = len(rows[0][0]) - 1
    total_s = gates * gate_s
    for segment in range(gates + 1):
        busiest_s = max(row[segment] for row, _ in rows)
        all_s = sum(row[segment] * weight for row, weight in rows)
        total_s += max(busiest_s, all_s / min(cost.cores, size))
    return total_s


def latency_bound_s(topology: Topology) -> float:
    """alpha * ceil(log2 p), p being hosts."""
    return topology.link.latency_s * (len(topology.layout.hosts) - 1).bit_length()


def bytes_bound_s(kind: Kind, nbytes: int, topology: Topology) -> float:
    """Return the bound for blocks of `nbytes`; 2 (p - 1) / p n beta for all_reduce."""
    layout = topology.layout
    total = nbytes * blocks_of(kind, layout.size)
    if kind is Kind.ALL_TO_ALL:
        total *= layout.largest
    return _PASSES[kind](1 - 1 / len(layout.hosts)) * total * topology.link.byte_s


def bound_s(kind: Kind, nbytes: int, topology: Topology) -> float:
    """Both."""
    return latency_bound_s(topology) + bytes_bound_s(kind, nbytes, topology)


def blocks_of(kind: Kind, size: int) -> int:
    """How many blocks the larger side of a call has."""
    if kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE):
        return 1
    return 0 if kind is Kind.BARRIER else size
