"""Plans for shared arrays: ranks of one host read and write each other's arrays where they are.

Nothing goes through slots, and nothing through the kernel. Each plan has two gates: one that all
reach before an array of a peer is touched, and one before any rank has its arrays back. Between them the
work is shared out so that each byte is read once and written once:

    all_reduce      each rank folds its share of the elements and writes it into all arrays
    reduce          the same, into root's array
    broadcast       each rank copies its share of root's array into all others, a piece at a time
    reduce_scatter  each rank folds its block out of all inputs
    all_gather      each rank copies its block into all outputs, in the same way
    gather          the same, into root's output
    all_to_all, scatter    who wants a block copies it from where it lies

Whether an op goes this way is agreed when it runs (native/core/in_place.cpp): all its ranks have to bring
shared arrays for what these plans expose. So a plan of one rank may be missing where it is too short.
"""

from __future__ import annotations

from collections.abc import Callable

from distdbg.ops.call import Kind
from distdbg.runtime.plan.broadcast import take_block
from distdbg.runtime.plan.build import StepBuilder, at_input, at_output, peers_after
from distdbg.runtime.plan.cut import cut_shares
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan, Space

_NAME = "in_place"


def plan_in_place(problem: Problem, topology: Topology) -> Plan | None:
    """The steps of `problem.rank` in shared arrays; None where the slots do as well, or there is no peer."""
    maker = _MAKERS.get(problem.kind)
    if maker is None or problem.size == 1 or len(topology.hosts) > 1:
        return None
    nbytes = max(sum(problem.in_nbytes), sum(problem.out_nbytes))
    if problem.kind in (Kind.GATHER, Kind.SCATTER):
        # All but root have one block.
        one = problem.in_nbytes if problem.kind is Kind.GATHER else problem.out_nbytes
        nbytes = one[0] * problem.size
    return maker(problem) if nbytes >= max(1, topology.in_place_nbytes) else None


def _all_reduce(problem: Problem) -> Plan:
    steps = StepBuilder()
    begin, length = cut_shares(problem.in_nbytes[0], problem.size, problem.itemsize)[problem.rank]
    steps.gate()
    # A share is read by the rank that folds it alone, so it may be written over at once.
    steps.fold_to(-1, begin, length, problem.order)
    steps.gate()
    return steps.plan(_NAME, (Space.INPUT, Space.OUTPUT))


def _reduce(problem: Problem) -> Plan:
    steps = StepBuilder()
    begin, length = cut_shares(problem.in_nbytes[0], problem.size, problem.itemsize)[problem.rank]
    steps.gate()
    steps.fold_to(problem.root, begin, length, problem.order)
    steps.gate()
    is_root = problem.rank == problem.root
    return steps.plan(_NAME, (Space.INPUT, Space.OUTPUT) if is_root else (Space.INPUT,))


def _broadcast(problem: Problem) -> Plan:
    steps = StepBuilder()
    begin, length = cut_shares(problem.out_nbytes[0], problem.size, problem.itemsize)[problem.rank]
    steps.gate()
    steps.spread(problem.root, at_input(begin), at_output(begin), length)
    steps.gate()
    is_root = problem.rank == problem.root
    return steps.plan(_NAME, (Space.INPUT,) if is_root else (Space.OUTPUT,))


def _reduce_scatter(problem: Problem) -> Plan:
    steps = StepBuilder()
    steps.gate()
    own, order = problem.rank, problem.order
    steps.fold(at_input(0, own), at_output(), problem.in_nbytes[own], order, own)
    steps.gate()
    return steps.plan(_NAME, (Space.INPUT,))


def _all_gather(problem: Problem) -> Plan:
    steps = StepBuilder()
    steps.gate()
    own = problem.out_nbytes[problem.rank]
    steps.spread(problem.rank, at_input(), at_output(0, problem.rank), own)
    steps.gate()
    return steps.plan(_NAME, (Space.OUTPUT,))


def _all_to_all(problem: Problem) -> Plan:
    steps = StepBuilder()
    rank = problem.rank
    steps.gate()
    for peer in peers_after(rank, problem.size):
        steps.pull(peer, at_input(0, rank), at_output(0, peer), problem.out_nbytes[peer])
    # The sizes are compared only behind the gate.
    own = min(problem.in_nbytes[rank], problem.out_nbytes[rank])
    steps.copy(at_input(0, rank), at_output(0, rank), own)
    steps.gate()
    return steps.plan(_NAME, (Space.INPUT,))


def _gather(problem: Problem) -> Plan:
    steps = StepBuilder()
    is_root = problem.rank == problem.root
    nbytes = problem.in_nbytes[0]
    steps.gate()
    if is_root:
        steps.copy(at_input(), at_output(0, problem.rank), nbytes)
    else:
        steps.push(problem.root, at_input(), at_output(0, problem.rank), nbytes)
    steps.gate()
    return steps.plan(_NAME, (Space.OUTPUT,) if is_root else ())


def _scatter(problem: Problem) -> Plan:
    steps = StepBuilder()
    take_block(steps, problem)
    return steps.plan(_NAME, (Space.INPUT,) if problem.rank == problem.root else ())


_MAKERS: dict[Kind, Callable[[Problem], Plan]] = {
    Kind.BROADCAST: _broadcast,
    Kind.ALL_REDUCE: _all_reduce,
    Kind.REDUCE: _reduce,
    Kind.ALL_GATHER: _all_gather,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.REDUCE_SCATTER: _reduce_scatter,
    Kind.ALL_TO_ALL: _all_to_all,
}
