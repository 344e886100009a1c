"""Plans of one host for groups over several: what ranks put into their slots goes to all hosts.

Right for little data. Arrays of other hosts cannot be read, so only what goes through slots will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdbg.ops.call import Kind
from distdbg.runtime.plan.all_gather import plan_all_gather, plan_gather
from distdbg.runtime.plan.all_reduce import flat
from distdbg.runtime.plan.broadcast import plan_broadcast, plan_scatter
from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_scratch, at_slot
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.reduce import flat as reduce_flat
from distdbg.runtime.plan.reduce_scatter import slots as reduce_scatter_slots
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

_MAKERS = {
    Kind.ALL_REDUCE: flat,
    Kind.BROADCAST: plan_broadcast,
    Kind.REDUCE: reduce_flat,
    Kind.ALL_GATHER: plan_all_gather,
    Kind.GATHER: plan_gather,
    Kind.SCATTER: plan_scatter,
    Kind.REDUCE_SCATTER: reduce_scatter_slots,
}


def plan_mirrored(problem: Problem, topology: Topology) -> Plan:
    """The plan through slots; its gates say how much of this rank's slot they hand on."""
    if topology.single_copy and published_nbytes(problem, topology) > topology.slots_nbytes:
        topology = replace(topology, single_copy=False)
    swaps = (
        problem.kind is Kind.REDUCE_SCATTER
        and has_two_alone(topology)
        and max(problem.in_nbytes) <= topology.slot_nbytes
    )
    plan = _swapped(problem) if swaps else _MAKERS[problem.kind](problem, topology)
    return replace(plan, algorithm="slots", steps=with_sizes(plan.steps))


def has_two_alone(topology: Topology) -> bool:
    """Whether the group is two hosts with a rank each: of what one publishes, the other needs all."""
    return len(topology.hosts) == topology.layout.size == 2


def _swapped(problem: Problem) -> Plan:
    """A reduce_scatter of two ranks: each publishes the block of the other only."""
    steps, other = StepBuilder(), 1 - problem.rank
    own, sent = problem.in_nbytes[problem.rank], problem.in_nbytes[other]
    steps.copy(at_input(0, other), at_slot(), sent)
    steps.gate()
    # Not folded in the output: that may be this rank's own block.
    work = at_scratch(steps.scratch(own))
    steps.pull(other, at_slot(), work, own)
    fold = steps.fold_before if problem.rank == 0 else steps.fold_after
    fold(work, at_input(0, problem.rank), own)
    steps.divide(work, own)
    steps.copy(work, at_output(), own)
    return steps.plan("slots")


def published_nbytes(problem: Problem, topology: Topology) -> int:
    """What all ranks put into their slots together; equal on all ranks."""
    match problem.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE | Kind.GATHER:
            return problem.in_nbytes[0] * problem.size
        case Kind.BROADCAST:
            return problem.out_nbytes[0]
        case Kind.SCATTER:
            return problem.out_nbytes[0] * (problem.size - 1)
        case Kind.ALL_GATHER:
            return sum(problem.out_nbytes)
        case Kind.REDUCE_SCATTER:
            return sum(problem.in_nbytes) * (1 if has_two_alone(topology) else problem.size)
        case _:
            return 0


def with_sizes(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, with gates that say how much of the slot they hand on."""
    sized = []
    published = 0
    for step in steps:
        if step.kind is StepKind.GATE:
            sized.append(replace(step, nbytes=published))
            published = 0
            continue
        if step.dst is Space.SLOT:
            published = max(published, step.dst_offset + step.nbytes)
        sized.append(step)
    return tuple(sized)
