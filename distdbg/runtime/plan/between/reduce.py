"""Plans of reduce between hosts: lanes fold as for all_reduce, and root collects from its host.

Ranks other than root have no output, so all of it happens in scratch memory.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import halving, ring, trees
from distdbg.runtime.plan.between.host import collect_streams, fold_streams
from distdbg.runtime.plan.between.seat import LanePosition, Part, Shares
from distdbg.runtime.plan.build import Place, at_input, at_output, at_scratch, shifted
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_reduce(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    seat = LanePosition(problem, topology, leaders=leaders)
    shares = Shares(problem.in_nbytes[0], seat.lanes, problem.itemsize)

    def streams(of: Place) -> list[list[Part]]:
        return [[(shifted(of, shares.begin(i)), shares.length(i))] for i in range(seat.lanes)]

    length = shares.length(seat.lane) if seat.lane >= 0 else 0
    if seat.is_alone:
        seat.steps.gate()
        own = at_input()
    else:
        own = at_scratch(seat.steps.scratch(length))
        fold_streams(seat, streams(at_input()), own)
    work = at_scratch(seat.steps.scratch(length))
    root_host = topology.layout.host_of(problem.root)
    if length:
        if algorithm in ("ring", "halving"):
            work = _by_chunks(seat, algorithm, own, work, length, root_host)
        else:
            below = trees.trees_of_root(seat, length, root_host, double=algorithm == "double_tree")
            trees.reduce(seat, below, own, work, None)
        if seat.host == root_host:
            seat.steps.divide(work, length)
    collect_streams(seat, streams(at_output()), problem.root, work)
    return seat.steps.plan(name)


def _by_chunks(
    seat: LanePosition, algorithm: str, own: Place, work: Place, nbytes: int, root_host: int
) -> Place:
    """Each host folds a chunk in `work` and sends it to root's host; say where the whole is there."""
    pairs = halving.Pairs(seat.count)
    # Root's input is its output, which the plan writes in the end.
    keeps = not (seat.is_alone and seat.rank == seat.problem.root)
    if algorithm == "ring":
        chunks = Shares(nbytes, seat.count, seat.problem.itemsize)
        ring.reduce_scatter(
            seat, chunks.begin, lambda c: shifted(own, chunks.begin(c)), work, keeps=keeps
        )
        holders = range(seat.count)
    else:
        chunks = Shares(nbytes, pairs.power, seat.problem.itemsize)
        halving.reduce_scatter(seat, chunks.begin, own, work, keeps=keeps)
        holders = range(pairs.power)
    # The chunks that arrive must not touch what root's host has sent from `work` and may still send.
    result = work if seat.host != root_host else at_scratch(seat.steps.scratch(nbytes))
    for chunk in holders:
        holder = chunk if algorithm == "ring" else pairs.real(chunk)
        begin, length = chunks.begin(chunk), chunks.length(chunk)
        if seat.host == root_host == holder:
            seat.steps.copy(shifted(work, begin), shifted(result, begin), length)
        elif seat.host == root_host:
            seat.steps.recv(seat.member(holder), shifted(result, begin), length)
        elif seat.host == holder:
            seat.steps.send(seat.member(root_host), shifted(work, begin), length)
    return result
