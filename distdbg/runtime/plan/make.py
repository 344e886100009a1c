"""Makes the plan of a problem: the one entrance to the makers, one file per family.

Pure, and on the way of the first call of every shape; callers keep what they get.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from distdbg.ops.call import Kind
from distdbg.runtime.plan.all_gather import plan_all_gather, plan_gather
from distdbg.runtime.plan.all_reduce import plan_all_reduce
from distdbg.runtime.plan.all_to_all import plan_all_to_all
from distdbg.runtime.plan.between.choose import plan_between
from distdbg.runtime.plan.broadcast import plan_broadcast, plan_scatter
from distdbg.runtime.plan.build import StepBuilder, at_input, at_output
from distdbg.runtime.plan.problem import Problem, Topology, deciding_nbytes
from distdbg.runtime.plan.reduce import plan_reduce
from distdbg.runtime.plan.reduce_scatter import plan_reduce_scatter
from distdbg.runtime.plan.steps import Plan
from distdbg.runtime.tuning.profile import HALF_NBYTES, TransportKind

Maker = Callable[[Problem, Topology], Plan]


def plan_barrier(problem: Problem, topology: Topology) -> Plan:
    """One gate: nobody leaves before all have come."""
    del problem, topology
    steps = StepBuilder()
    steps.gate()
    return steps.plan("gate")


MAKERS: dict[Kind, Maker] = {
    Kind.BROADCAST: plan_broadcast,
    Kind.ALL_REDUCE: plan_all_reduce,
    Kind.REDUCE: plan_reduce,
    Kind.ALL_GATHER: plan_all_gather,
    Kind.GATHER: plan_gather,
    Kind.SCATTER: plan_scatter,
    Kind.REDUCE_SCATTER: plan_reduce_scatter,
    Kind.ALL_TO_ALL: plan_all_to_all,
    Kind.BARRIER: plan_barrier,
}

_FOLDS = frozenset({Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER})


def plan_alone(problem: Problem) -> Plan:
    """A group of one rank: its input is its output, folded once because the op may scale."""
    steps = StepBuilder()
    steps.gate()
    nbytes = sum(problem.in_nbytes)
    if problem.kind in _FOLDS:
        steps.fold(at_input(), at_output(), nbytes)
    elif problem.kind is not Kind.BROADCAST:
        steps.copy(at_input(), at_output(), nbytes)
    return steps.plan("alone")


def _on_this_machine(problem: Problem, topology: Topology) -> Topology:
    """The topology as the makers are to see it for this call."""
    way = topology.ways.way(problem.kind, deciding_nbytes(problem))
    if way is TransportKind.DIRECT:
        return replace(topology, slots_nbytes=0)
    # Between hosts a fold may be cut where rounds are, so rounds stay as they are.
    if way is not TransportKind.HALF or len(topology.hosts) > 1:
        return topology
    return replace(topology, slot_nbytes=min(topology.slot_nbytes, HALF_NBYTES))


def make_plan(problem: Problem, topology: Topology) -> Plan:
    """The steps of `problem.rank`; ValueError for a kind that is not collective."""
    maker = MAKERS.get(problem.kind)
    if maker is None:
        raise ValueError(f"{problem.kind.label} is point to point and has no plan")
    if problem.size == 1 and problem.kind is not Kind.BARRIER:
        return plan_alone(problem)
    topology = _on_this_machine(problem, topology)
    if len(topology.hosts) > 1 and problem.kind is not Kind.BARRIER:
        return plan_between(replace(problem, order=None), topology)
    return maker(problem, topology)
