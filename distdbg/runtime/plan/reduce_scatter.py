"""Plans of reduce_scatter: rank r folds block r of all inputs. Blocks may differ in size.

    slots   every rank puts its blocks into its slot, a part of each block a round, and folds its
            own block's parts: one gate a round
    direct  every rank folds its block where it lies in the inputs

The output may be the rank's own block of its input: nobody else reads that block.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_slot
from distdbg.runtime.plan.cut import pack_rounds
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_reduce_scatter(problem: Problem, topology: Topology) -> Plan:
    """The plan for the size at hand."""
    if topology.single_copy and sum(problem.in_nbytes) > topology.slots_nbytes:
        return direct(problem)
    return slots(problem, topology)


def slots(problem: Problem, topology: Topology) -> Plan:
    """Blocks go through the slots."""
    steps = StepBuilder()
    rounds = pack_rounds(problem.in_nbytes, topology.slot_nbytes, problem.itemsize)
    if rounds:
        for piece in rounds[0]:
            steps.copy(
                at_input(piece.offset, piece.block), at_slot(piece.slot_offset), piece.nbytes
            )
    steps.gate()
    for k, pieces in enumerate(rounds):
        for piece in pieces:
            if piece.block == problem.rank:
                steps.fold(
                    at_slot(piece.slot_offset), at_output(piece.offset), piece.nbytes,
                    problem.order, piece.block, piece.offset,
                )  # fmt: skip
        if k + 1 < len(rounds):
            for piece in rounds[k + 1]:
                steps.copy(
                    at_input(piece.offset, piece.block), at_slot(piece.slot_offset), piece.nbytes
                )
            steps.gate()
    return steps.plan("slots")


def direct(problem: Problem) -> Plan:
    """Fold straight from the inputs."""
    steps = StepBuilder()
    steps.gate()
    own, order = problem.rank, problem.order
    steps.fold(at_input(0, own), at_output(), problem.in_nbytes[own], order, own)
    steps.gate()
    return steps.plan("direct")
