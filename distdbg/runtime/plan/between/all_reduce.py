"""Plans of all_reduce between hosts.

Inside of a host every lane folds its share of the host's inputs; between hosts the lanes fold what the
hosts have, by one of the algorithms; inside again all ranks collect the shares of all lanes.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import halving, ring, trees
from distdbg.runtime.plan.between.host import fold_streams, share
from distdbg.runtime.plan.between.seat import LanePosition, Part, Shares
from distdbg.runtime.plan.build import Place, at_input, at_output, at_scratch, shifted
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_all_reduce(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    seat = LanePosition(problem, topology, leaders=leaders)
    nbytes = problem.in_nbytes[0]
    shares = Shares(nbytes, seat.lanes, problem.itemsize)

    def streams(of: Place) -> list[list[Part]]:
        return [[(shifted(of, shares.begin(i)), shares.length(i))] for i in range(seat.lanes)]

    begin, length = (
        (shares.begin(seat.lane), shares.length(seat.lane)) if seat.lane >= 0 else (0, 0)
    )
    out = at_output(begin)
    if seat.is_alone:
        seat.steps.gate()
        own = at_input()
    else:
        fold_streams(seat, streams(at_input()), out)
        own = out
    if length:
        _between(seat, algorithm, own, out, length)
    share(seat, streams(at_output()))
    return seat.steps.plan(name)


def _between(seat: LanePosition, algorithm: str, own: Place, out: Place, nbytes: int) -> None:
    """Fold a lane's share over all hosts, from `own` to `out`, which may be one place."""
    steps, host = seat.steps, seat.host
    if algorithm == "doubling":
        halving.all_reduce(seat, own, out, nbytes)
        return
    work = at_scratch(steps.scratch(nbytes))
    if algorithm == "double_tree":
        trees.reduce(seat, trees.trees_for_all(seat, nbytes), own, work, out)
        return
    if algorithm == "ring":
        chunks = Shares(nbytes, seat.count, seat.problem.itemsize)
        ring.reduce_scatter(
            seat, chunks.begin, lambda c: shifted(own, chunks.begin(c)), work, keeps=False
        )
        _finish(seat, work, out, chunks.begin(host), chunks.length(host))
        ring.all_gather(seat, lambda c: [(shifted(out, chunks.begin(c)), chunks.length(c))])
        return
    pairs = halving.Pairs(seat.count)
    chunks = Shares(nbytes, pairs.power, seat.problem.itemsize)
    halving.reduce_scatter(seat, chunks.begin, own, work, keeps=False)
    if not pairs.is_idle(host):
        virtual = pairs.virtual(host)
        _finish(seat, work, out, chunks.begin(virtual), chunks.length(virtual))
    halving.all_gather(seat, chunks.begin, out)


def _finish(seat: LanePosition, work: Place, out: Place, begin: int, nbytes: int) -> None:
    """Divide a chunk, once, and put it where it belongs."""
    seat.steps.divide(shifted(work, begin), nbytes)
    seat.steps.copy(shifted(work, begin), shifted(out, begin), nbytes)
