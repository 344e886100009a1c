"""Plans of reduce: the result of folding all inputs, on root alone.

    flat         every rank fills its slot, root folds all slots: one gate a round
    direct       root folds the inputs where they are
    split_slots  every rank folds its share of all slots, root collects; rounds overlap as in
                 all_reduce's two_phase_slots, which it is
    split        every rank folds its share of the inputs into its slot, root collects: no rank
                 but root has an output, and inputs of the others must stay as they are

On root the input and the output are the same memory.
"""

from __future__ import annotations

from distdbg.runtime.plan import all_reduce
from distdbg.runtime.plan.all_reduce import collect_shares, two_phase_slots
from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_slot
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
    if not is_split:
        return flat(problem, topology)
    is_root = problem.rank == problem.root
    return two_phase_slots(problem, topology, "split_slots", has_result=is_root)


def flat(problem: Problem, topology: Topology) -> Plan:
    """Root folds all slots, in as many rounds as the slot makes necessary."""
    return all_reduce.flat(problem, topology, has_result=problem.rank == problem.root)


def direct(problem: Problem) -> Plan:
    """Root folds the inputs where they are."""
    steps = StepBuilder()
    steps.gate()
    if problem.rank == problem.root:
        steps.fold(at_input(), at_output(), problem.in_nbytes[0], problem.order)
    steps.gate()
    return steps.plan("direct")


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
            offset = rounds[k][0] + begin
            steps.fold(at_input(offset), at_slot(), length, problem.order, offset=offset)
        if k > 0 and problem.rank == problem.root:
            collect_shares(steps, problem, rounds[k - 1][0], shares[k - 1], 0)
        if k < len(rounds):
            steps.gate()
    return steps.plan("split")
