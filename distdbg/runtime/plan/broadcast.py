"""Plans of broadcast and scatter: what root holds goes to the others.

    slots   root puts its data into its slot, one slot full a round; the others fetch what is
            theirs while root fills the next round: one gate a round
    direct  the others fetch from root's array, and root, which would have nothing to do, writes the
            last part into theirs, as much as it can in the same time

All ranks are on one host and share its memory bandwidth, so passing data on along a chain or a
tree would only add copies.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, at_slot, peers_after
from distdbg.runtime.plan.cut import alignment, cut_rounds
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_broadcast(problem: Problem, topology: Topology) -> Plan:
    """Root's block, which is its input and its output, becomes the output of all."""
    nbytes = problem.out_nbytes[0]
    steps = StepBuilder()
    is_root = problem.rank == problem.root
    if topology.single_copy and nbytes > topology.slots_nbytes:
        begin = _fetched_nbytes(problem)
        steps.gate()
        if is_root:
            for peer in peers_after(problem.root, problem.size):
                steps.push(peer, at_input(begin), at_output(begin), nbytes - begin)
        else:
            steps.pull(problem.root, at_input(), at_output(), begin)
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


def _fetched_nbytes(problem: Problem) -> int:
    """How much the others fetch while root writes the rest.

    Root writes three bytes into one array in the time in which another rank fetches two that root has just
    written. And what nobody fetches is root's alone when it writes it anew.
    """
    nbytes, others = problem.out_nbytes[0], problem.size - 1
    align = alignment(nbytes, problem.itemsize)
    return nbytes * 2 * others // (2 * others + 3) // align * align


def take_block(steps: StepBuilder, problem: Problem) -> None:
    """Every rank takes its block of root's input from where it is."""
    nbytes = problem.out_nbytes[0]
    steps.gate()
    if problem.rank == problem.root:
        steps.copy(at_input(0, problem.rank), at_output(), nbytes)
    else:
        steps.pull(problem.root, at_input(0, problem.rank), at_output(), nbytes)
    steps.gate()


def plan_scatter(problem: Problem, topology: Topology) -> Plan:
    """Root's input block p becomes the output of rank p."""
    nbytes = problem.out_nbytes[0]
    steps = StepBuilder()
    is_root = problem.rank == problem.root
    if topology.single_copy and nbytes > topology.slots_nbytes:
        take_block(steps, problem)
        return steps.plan("direct")
    # The blocks travel one after the other, root's own not at all.
    order = peers_after(problem.root, problem.size)
    rounds = cut_rounds(nbytes * len(order), topology.slot_nbytes, problem.itemsize)
    if is_root and rounds:
        _fill(steps, order, nbytes, rounds[0])
    steps.gate()
    if is_root:
        steps.copy(at_input(0, problem.rank), at_output(), nbytes)
    mine = 0 if is_root else order.index(problem.rank) * nbytes
    for k, (offset, length) in enumerate(rounds):
        if not is_root:
            begin, end = max(mine, offset), min(mine + nbytes, offset + length)
            steps.pull(problem.root, at_slot(begin - offset), at_output(begin - mine), end - begin)
        if k + 1 < len(rounds):
            if is_root:
                _fill(steps, order, nbytes, rounds[k + 1])
            steps.gate()
    return steps.plan("slots")


def _fill(steps: StepBuilder, order: list[int], nbytes: int, window: tuple[int, int]) -> None:
    """Put the bytes of `window` of the blocks in `order`, each `nbytes` long, into the slot."""
    offset, end = window[0], window[0] + window[1]
    for i in range(offset // nbytes, -(-end // nbytes)):
        begin = max(i * nbytes, offset)
        steps.copy(
            at_input(begin - i * nbytes, order[i]),
            at_slot(begin - offset),
            min((i + 1) * nbytes, end) - begin,
        )
