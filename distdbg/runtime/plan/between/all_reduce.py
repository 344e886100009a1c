"""Plans of all_reduce between hosts.

Inside of a host every lane folds its share of the host's inputs; between hosts the lanes fold what the
hosts have, by one of the algorithms; inside again all ranks collect the shares of all lanes.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import halving, ring, trees
from distdbg.runtime.plan.between.host import fold_streams, share
from distdbg.runtime.plan.between.lane_position import LanePosition, Part, Shares
from distdbg.runtime.plan.build import Place, at_input, at_output, at_scratch, shifted
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_all_reduce(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    position = LanePosition(problem, topology, leaders=leaders)
    nbytes = problem.in_nbytes[0]
    shares = Shares(nbytes, position.lanes, problem.itemsize)

    def streams(of: Place) -> list[list[Part]]:
        return [[(shifted(of, shares.begin(i)), shares.length(i))] for i in range(position.lanes)]

    begin, length = (
        (shares.begin(position.lane), shares.length(position.lane))
        if position.lane >= 0
        else (0, 0)
    )
    out = at_output(begin)
    if position.is_alone:
        position.steps.gate()
        own = at_input()
    else:
        fold_streams(position, streams(at_input()), out)
        own = out
    if length:
        _between(position, algorithm, own, out, length)
    share(position, streams(at_output()))
    return position.steps.plan(name)


def _between(position: LanePosition, algorithm: str, own: Place, out: Place, nbytes: int) -> None:
    """Fold a lane's share over all hosts, from `own` to `out`, which may be one place."""
    steps, host = position.steps, position.host
    if algorithm == "doubling":
        halving.all_reduce(position, own, out, nbytes)
        return
    work = at_scratch(steps.scratch(nbytes))
    if algorithm == "double_tree":
        trees.reduce(position, trees.trees_for_all(position, nbytes), own, work, out)
        return
    if algorithm == "ring":
        chunks = Shares(nbytes, position.count, position.problem.itemsize)
        ring.reduce_scatter(
            position, chunks.begin, lambda c: shifted(own, chunks.begin(c)), work, keeps=False
        )
        _finish(position, work, out, chunks.begin(host), chunks.length(host))
        ring.all_gather(position, lambda c: [(shifted(out, chunks.begin(c)), chunks.length(c))])
        return
    pairs = halving.Pairs(position.count)
    chunks = Shares(nbytes, pairs.power, position.problem.itemsize)
    halving.reduce_scatter(position, chunks.begin, own, work, keeps=False)
    if not pairs.is_idle(host):
        virtual = pairs.virtual(host)
        _finish(position, work, out, chunks.begin(virtual), chunks.length(virtual))
    halving.all_gather(position, chunks.begin, out)


def _finish(position: LanePosition, work: Place, out: Place, begin: int, nbytes: int) -> None:
    """Divide a chunk, once, and put it where it belongs."""
    position.steps.divide(shifted(work, begin), nbytes)
    position.steps.copy(shifted(work, begin), shifted(out, begin), nbytes)
