"""All algorithms for one call side by side: what each would take, by its plans where there are not too many.

Pure: for `distdbg plan` and for the page on scale.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.ops.call import Kind
from distdbg.runtime.plan.between.choose import choose, names_for, plan_by_name
from distdbg.runtime.plan.between.estimate import estimate_s
from distdbg.runtime.plan.bounds import blocks_of
from distdbg.runtime.plan.cost import Cost, predict_sampled_s
from distdbg.runtime.plan.make import make_plan
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology, uniform_problem
from distdbg.runtime.plan.timing import SimulatedFaults, Timing, time_plans

#: Above so many messages of all ranks a plan is not run, only estimated.
MOST_MESSAGES = 300_000

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
    return layout.size * each > MOST_MESSAGES


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
