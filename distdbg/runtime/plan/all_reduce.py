"""Plans of all_reduce: the result of folding all inputs, on every rank.

    flat             every rank puts its input into its slot and folds all slots: one gate a round
    two_phase_slots  every rank folds its share of all slots, and collects the others' shares; the
                     rounds overlap: after one gate a rank folds round k, fills round k+1 and
                     collects round k-1, so that R rounds cost R+1 gates
    two_phase        every rank folds its share straight from the users' arrays, piece by piece, and writes
                     each piece into all of them: no slots, no rounds, no gate in between

The input and the output are the same memory. `two_phase` may still write into the outputs while
peers read inputs, because a share of the inputs is read only by the rank that folds it.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_slot, peers_after
from distdbg.runtime.plan.cut import alignment, cut_rounds, cut_shares
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan

#: What is folded is written to all while it is in the cache, in one system call for each.
_PIECE_NBYTES = 256 << 10


def plan_all_reduce(problem: Problem, topology: Topology) -> Plan:
    """The plan for the size at hand."""
    nbytes = problem.in_nbytes[0]
    if nbytes * problem.size <= topology.fold_flat_nbytes:
        return flat(problem, topology)
    if topology.single_copy and nbytes > topology.slots_nbytes:
        return two_phase(problem)
    # With two ranks, folding both slots moves fewer bytes than sharing the work and collecting.
    return flat(problem, topology) if problem.size == 2 else two_phase_slots(problem, topology)


def flat(problem: Problem, topology: Topology, *, has_result: bool = True) -> Plan:
    """Fold all slots on each rank that gets the result, in as many rounds as the slot makes necessary."""
    steps = StepBuilder()
    rounds = cut_rounds(problem.in_nbytes[0], topology.slot_nbytes, problem.itemsize)
    if rounds:
        steps.copy(at_input(rounds[0][0]), at_slot(), rounds[0][1])
    steps.gate()
    for k, (offset, nbytes) in enumerate(rounds):
        if has_result:
            steps.fold(at_slot(), at_output(offset), nbytes, problem.order, offset=offset)
        if k + 1 < len(rounds):
            steps.copy(at_input(rounds[k + 1][0]), at_slot(), rounds[k + 1][1])
            steps.gate()
    return steps.plan("flat")


def share_rounds(problem: Problem, topology: Topology) -> list[tuple[int, int]]:
    """Rounds for which the slot holds the input of a round and one share of its result."""
    n = problem.size
    align = alignment(topology.slot_nbytes // (4 * n), problem.itemsize)
    units = topology.slot_nbytes // align
    # c + ceil(c / n) <= units holds for c = floor(units * n / (n + 1)).
    capacity = units * n // (n + 1) * align
    return cut_rounds(problem.in_nbytes[0], capacity, problem.itemsize)


def two_phase_slots(
    problem: Problem,
    topology: Topology,
    name: str = "two_phase_slots",
    *,
    has_result: bool = True,
) -> Plan:
    """Share the folding, with inputs and shares in the slots."""
    n, rank = problem.size, problem.rank
    steps = StepBuilder()
    rounds = share_rounds(problem, topology)
    shares = [cut_shares(nbytes, n, problem.itemsize) for _, nbytes in rounds]
    # The share lies behind the input of the largest round, at the same place in all rounds.
    behind = max((nbytes for _, nbytes in rounds), default=0)
    if rounds:
        steps.copy(at_input(rounds[0][0]), at_slot(), rounds[0][1])
    steps.gate()
    for k in range(len(rounds) + 1):
        if k < len(rounds):
            begin, length = shares[k][rank]
            steps.fold(
                at_slot(begin), at_slot(behind), length, problem.order, offset=rounds[k][0] + begin
            )
        if k + 1 < len(rounds):
            steps.copy(at_input(rounds[k + 1][0]), at_slot(), rounds[k + 1][1])
        if k > 0 and has_result:
            collect_shares(steps, problem, rounds[k - 1][0], shares[k - 1], behind)
        if k < len(rounds):
            steps.gate()
    return steps.plan(name)


def collect_shares(
    steps: StepBuilder,
    problem: Problem,
    offset: int,
    shares: list[tuple[int, int]],
    slot_offset: int,
) -> None:
    """Fetch the shares of a round out of the slots."""
    for peer in peers_after(problem.rank, problem.size):
        begin, length = shares[peer]
        steps.pull(peer, at_slot(slot_offset), at_output(offset + begin), length)
    begin, length = shares[problem.rank]
    steps.copy(at_slot(slot_offset), at_output(offset + begin), length)


def two_phase(problem: Problem) -> Plan:
    """Share the folding, straight between the users' arrays."""
    n, rank = problem.size, problem.rank
    steps = StepBuilder()
    shares = cut_shares(problem.in_nbytes[0], n, problem.itemsize)
    begin, length = shares[rank]
    steps.gate()
    for offset, nbytes in cut_rounds(length, _PIECE_NBYTES, problem.itemsize):
        at = begin + offset
        steps.fold(at_input(at), at_output(at), nbytes, problem.order, offset=at)
        for peer in peers_after(rank, n):
            steps.push(peer, at_output(at), at_output(at), nbytes)
    steps.gate()
    return steps.plan("two_phase")
