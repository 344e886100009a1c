"""Plans of reduce: the result of folding all inputs, on root alone.

    flat         every rank fills its slot, root folds all slots: one gate a round
    direct       root folds the inputs where they are
    split_slots  every rank folds its share of all slots, root collects; rounds overlap as in
                 all_reduce's two_phase_slots
    split        every rank folds its share of the inputs into its slot, root collects: no rank
                 but root has an output, and inputs of the others must stay as they are

On root the input and the output are the same memory.
"""

from __future__ import annotations

from distdbg.runtime.plan.all_reduce import share_rounds
from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_slot, peers_after
from distdbg.runtime.plan.cut import cut_rounds, cut_shares
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_reduce(problem: Problem, topology: Topology) -> Plan:
    """The plan for the size at hand."""
    nbytes = problem.in_nbytes[0]
    is_split = nbytes >= max(topology.split_nbytes, 1)
    if topology.single_copy and nbytes > topology.slots_nbytes:
        return split(problem, topology) if is_split else direct(problem)
    # With two ranks, what root saves of the fold it pays for filling and fetching.
    is_split = is_split and problem.size > 2
    return split_slots(problem, topology) if is_split else flat(problem, topology)


def flat(problem: Problem, topology: Topology) -> Plan:
    """Root folds all slots, in as many rounds as the slot makes necessary."""
    steps = StepBuilder()
    rounds = cut_rounds(problem.in_nbytes[0], topology.slot_nbytes, problem.itemsize)
    if rounds:
        steps.copy(at_input(rounds[0][0]), at_slot(), rounds[0][1])
    steps.gate()
    for k, (offset, nbytes) in enumerate(rounds):
        if problem.rank == problem.root:
            steps.fold(at_slot(), at_output(offset), nbytes)
        if k + 1 < len(rounds):
            steps.copy(at_input(rounds[k + 1][0]), at_slot(), rounds[k + 1][1])
            steps.gate()
    return steps.plan("flat")


def direct(problem: Problem) -> Plan:
    """Root folds the inputs where they are."""
    steps = StepBuilder()
    steps.gate()
    if problem.rank == problem.root:
        steps.fold(at_input(), at_output(), problem.in_nbytes[0])
    steps.gate()
    return steps.plan("direct")


def split_slots(problem: Problem, topology: Topology) -> Plan:
    """Share the folding, with inputs and shares in the slots."""
    steps = StepBuilder()
    rounds = share_rounds(problem, topology)
    shares = [cut_shares(nbytes, problem.size, problem.itemsize) for _, nbytes in rounds]
    behind = max(nbytes for _, nbytes in rounds)
    steps.copy(at_input(rounds[0][0]), at_slot(), rounds[0][1])
    steps.gate()
    for k in range(len(rounds) + 1):
        if k < len(rounds):
            begin, length = shares[k][problem.rank]
            steps.fold(at_slot(begin), at_slot(behind), length)
        if k + 1 < len(rounds):
            steps.copy(at_input(rounds[k + 1][0]), at_slot(), rounds[k + 1][1])
        if k > 0:
            _collect(steps, problem, rounds[k - 1][0], shares[k - 1], behind)
        if k < len(rounds):
            steps.gate()
    return steps.plan("split_slots")


def split(problem: Problem, topology: Topology) -> Plan:
    """Share the folding; only the results go through the slots."""
    steps = StepBuilder()
    capacity = topology.slot_nbytes // 64 * 64 * problem.size
    rounds = cut_rounds(problem.in_nbytes[0], capacity, problem.itemsize)
    shares = [cut_shares(nbytes, problem.size, problem.itemsize) for _, nbytes in rounds]
    steps.gate()
    for k in range(len(rounds) + 1):
        if k < len(rounds):
            begin, length = shares[k][problem.rank]
            steps.fold(at_input(rounds[k][0] + begin), at_slot(), length)
        if k > 0:
            _collect(steps, problem, rounds[k - 1][0], shares[k - 1], 0)
        if k < len(rounds):
            steps.gate()
    return steps.plan("split")


def _collect(
    steps: StepBuilder,
    problem: Problem,
    offset: int,
    shares: list[tuple[int, int]],
    slot_offset: int,
) -> None:
    """Root fetches the shares of a round out of the slots."""
    if problem.rank != problem.root:
        return
    for peer in peers_after(problem.rank, problem.size):
        begin, length = shares[peer]
        steps.pull(peer, at_slot(slot_offset), at_output(offset + begin), length)
    begin, length = shares[problem.rank]
    steps.copy(at_slot(slot_offset), at_output(offset + begin), length)
