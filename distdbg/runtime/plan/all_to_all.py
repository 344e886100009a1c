"""Plans of all_to_all: input block p of rank r becomes output block r of rank p.

    slots     all blocks go through the slots at once, for small equal blocks
    exchange  one step, which finds the sizes of the peers' blocks in the published tables

A rank whose split sizes are equal does not know whether its peers' are, so only a call without
split sizes may use the slots: on all ranks the same form is called.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import Steps, at_input, at_output, at_slot, peers_after
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_all_to_all(problem: Problem, topology: Topology) -> Plan:
    """The plan for the size at hand."""
    n, rank = problem.size, problem.rank
    steps = Steps()
    block = problem.in_nbytes[0] if problem.even else 0
    if not problem.even or block * n > min(topology.slot_nbytes, topology.move_flat_nbytes):
        steps.gate()
        steps.exchange(sum(problem.out_nbytes))
        steps.gate()
        return steps.plan("exchange")
    for peer in peers_after(rank, n):
        steps.copy(at_input(0, peer), at_slot(peer * block), block)
    steps.gate()
    for peer in peers_after(rank, n):
        steps.pull(peer, at_slot(rank * block), at_output(0, peer), block)
    steps.copy(at_input(0, rank), at_output(0, rank), block)
    return steps.plan("slots")
