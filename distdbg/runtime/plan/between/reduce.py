"""Plans of reduce between hosts: lanes fold as for all_reduce, and root collects from its host.

Ranks other than root have no output, so all of it happens in scratch memory.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import halving, ring, trees
from distdbg.runtime.plan.between.host import collect_streams, fold_streams
from distdbg.runtime.plan.between.lane_position import LanePosition, Part, Shares
from distdbg.runtime.plan.build import Place, at_input, at_output, at_scratch, shifted
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_reduce(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    position = LanePosition(problem, topology, leaders=leaders)
    shares = Shares(problem.in_nbytes[0], position.lanes, problem.itemsize)

    def streams(of: Place) -> list[list[Part]]:
        return [[(shifted(of, shares.begin(i)), shares.length(i))] for i in range(position.lanes)]

    length = shares.length(position.lane) if position.lane >= 0 else 0
    if position.is_alone:
        position.steps.gate()
        own = at_input()
    else:
        own = at_scratch(position.steps.scratch(length))
        fold_streams(position, streams(at_input()), own)
    work = at_scratch(position.steps.scratch(length))
    root_host = topology.layout.host_of(problem.root)
    if length:
        if algorithm in ("ring", "halving"):
            work = _by_chunks(position, algorithm, own, work, length, root_host)
        else:
            below = trees.trees_of_root(
                position, length, root_host, double=algorithm == "double_tree"
            )
            trees.reduce(position, below, own, work, None)
        if position.host == root_host:
            position.steps.divide(work, length)
    collect_streams(position, streams(at_output()), problem.root, work)
    return position.steps.plan(name)


def _by_chunks(
    position: LanePosition, algorithm: str, own: Place, work: Place, nbytes: int, root_host: int
) -> Place:
    """Each host folds a chunk in `work` and sends it to root's host; say where the whole is there."""
    pairs = halving.Pairs(position.count)
    # Root's input is its output, which the plan writes in the end.
    keeps = not (position.is_alone and position.rank == position.problem.root)
    if algorithm == "ring":
        chunks = Shares(nbytes, position.count, position.problem.itemsize)
        ring.reduce_scatter(
            position, chunks.begin, lambda c: shifted(own, chunks.begin(c)), work, keeps=keeps
        )
        holders = range(position.count)
    else:
        chunks = Shares(nbytes, pairs.power, position.problem.itemsize)
        halving.reduce_scatter(position, chunks.begin, own, work, keeps=keeps)
        holders = range(pairs.power)
    # The chunks that arrive must not touch what root's host has sent from `work` and may still send.
    result = work if position.host != root_host else at_scratch(position.steps.scratch(nbytes))
    for chunk in holders:
        holder = chunk if algorithm == "ring" else pairs.real(chunk)
        begin, length = chunks.begin(chunk), chunks.length(chunk)
        if position.host == root_host == holder:
            position.steps.copy(shifted(work, begin), shifted(result, begin), length)
        elif position.host == root_host:
            position.steps.recv(position.member(holder), shifted(result, begin), length)
        elif position.host == holder:
            position.steps.send(position.member(root_host), shifted(work, begin), length)
    return result
