"""Plans of all_gather and gather: the inputs of all ranks, side by side, on all ranks or on root.

    slots   every rank puts its input into its slot, one slot full a round; who wants it fetches
            it while the next round is filled: one gate a round
    direct  every rank writes its input into the output of who wants it

Blocks of all_gather may differ in size. A rank's own input may already lie at its place in the
output; the interpreter skips such a copy.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_slot, peers_after
from distdbg.runtime.plan.cut import cut_rounds
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_all_gather(problem: Problem, topology: Topology) -> Plan:
    """The input of rank p becomes output block p of all."""
    return _plan(problem, topology, problem.out_nbytes, collects=True)


def plan_gather(problem: Problem, topology: Topology) -> Plan:
    """The input of rank p becomes output block p of root."""
    blocks = problem.in_nbytes * problem.size
    # Root's own input never travels.
    travels = problem.rank != problem.root
    return _plan(problem, topology, blocks, collects=not travels, travels=travels)


def _plan(
    problem: Problem,
    topology: Topology,
    blocks: tuple[int, ...],
    *,
    collects: bool,
    travels: bool = True,
) -> Plan:
    rank, largest, own = problem.rank, max(blocks), blocks[problem.rank]
    steps = StepBuilder()
    if topology.single_copy and largest > topology.slots_nbytes:
        steps.gate()
        if collects:
            steps.copy(at_input(), at_output(0, rank), own)
        if travels:
            peers = peers_after(rank, problem.size) if collects else [problem.root]
            for peer in peers:
                steps.push(peer, at_input(), at_output(0, rank), own)
        steps.gate()
        return steps.plan("direct")
    rounds = cut_rounds(largest, topology.slot_nbytes, problem.itemsize)
    if travels and rounds:
        steps.copy(at_input(), at_slot(), min(own, rounds[0][1]))
    steps.gate()
    for k, (offset, length) in enumerate(rounds):
        if travels and k + 1 < len(rounds):
            begin, following = rounds[k + 1]
            steps.copy(at_input(begin), at_slot(), min(own - begin, following))
        if collects:
            for peer in peers_after(rank, problem.size):
                part = min(blocks[peer] - offset, length)
                steps.pull(peer, at_slot(), at_output(offset, peer), part)
            steps.copy(at_input(offset), at_output(offset, rank), min(own - offset, length))
        if k + 1 < len(rounds):
            steps.gate()
    return steps.plan("slots")
