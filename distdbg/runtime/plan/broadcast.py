"""Plans of broadcast and scatter: what root holds goes to the others.

    slots   root puts its data into its slot, one slot full a round; the others fetch what is
            theirs while root fills the next round: one gate a round
    direct  the others fetch from root's array

All ranks are on one host and share its memory bandwidth, so passing data on along a chain or a
tree would only add copies.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import Steps, at_input, at_output, at_slot
from distdbg.runtime.plan.cut import cut_rounds, pack_rounds
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_broadcast(problem: Problem, topology: Topology) -> Plan:
    """Root's block, which is its input and its output, becomes the output of all."""
    nbytes = problem.out_nbytes[0]
    steps = Steps()
    is_root = problem.rank == problem.root
    if topology.single_copy and nbytes > topology.move_flat_nbytes:
        steps.gate()
        if not is_root:
            steps.pull(problem.root, at_input(), at_output(), nbytes)
        steps.gate()
        return steps.plan("direct")
    rounds = cut_rounds(nbytes, topology.slot_nbytes, problem.itemsize)
    if is_root and rounds:
        steps.copy(at_input(), at_slot(), rounds[0][1])
    steps.gate()
    for k, (offset, length) in enumerate(rounds):
        if not is_root:
            steps.pull(problem.root, at_slot(), at_output(offset), length)
        if k + 1 < len(rounds):
            if is_root:
                steps.copy(at_input(rounds[k + 1][0]), at_slot(), rounds[k + 1][1])
            steps.gate()
    return steps.plan("slots")


def plan_scatter(problem: Problem, topology: Topology) -> Plan:
    """Root's input block p becomes the output of rank p."""
    nbytes = problem.out_nbytes[0]
    steps = Steps()
    is_root = problem.rank == problem.root
    if topology.single_copy and nbytes > topology.move_flat_nbytes:
        steps.gate()
        if is_root:
            steps.copy(at_input(0, problem.rank), at_output(), nbytes)
        else:
            steps.pull(problem.root, at_input(0, problem.rank), at_output(), nbytes)
        steps.gate()
        return steps.plan("direct")
    # Root's own block never travels.
    travelling = [0 if p == problem.root else nbytes for p in range(problem.size)]
    rounds = pack_rounds(travelling, topology.slot_nbytes, problem.itemsize)
    if is_root and rounds:
        for piece in rounds[0]:
            steps.copy(
                at_input(piece.offset, piece.block), at_slot(piece.slot_offset), piece.nbytes
            )
    steps.gate()
    if is_root:
        steps.copy(at_input(0, problem.rank), at_output(), nbytes)
    for k, pieces in enumerate(rounds):
        if not is_root:
            for piece in pieces:
                if piece.block == problem.rank:
                    steps.pull(
                        problem.root,
                        at_slot(piece.slot_offset),
                        at_output(piece.offset),
                        piece.nbytes,
                    )
        if k + 1 < len(rounds):
            if is_root:
                for piece in rounds[k + 1]:
                    steps.copy(
                        at_input(piece.offset, piece.block),
                        at_slot(piece.slot_offset),
                        piece.nbytes,
                    )
            steps.gate()
    return steps.plan("slots")
