"""Plans of broadcast between hosts: root shares its data out over the lanes of its host.

Every lane passes its share on along trees of hosts; inside all ranks collect the shares of all lanes.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import trees
from distdbg.runtime.plan.between.host import hand_out, share
from distdbg.runtime.plan.between.seat import LanePosition, Part, Shares
from distdbg.runtime.plan.build import at_output
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_broadcast(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    seat = LanePosition(problem, topology, leaders=leaders)
    shares = Shares(problem.out_nbytes[0], seat.lanes, problem.itemsize)
    streams: list[list[Part]] = [
        [(at_output(shares.begin(i)), shares.length(i))] for i in range(seat.lanes)
    ]
    if seat.is_alone:
        seat.steps.gate()
    else:
        hand_out(seat, streams, problem.root)
    if seat.lane >= 0:
        [(out, nbytes)] = streams[seat.lane]
        root_host = topology.layout.host_of(problem.root)
        below = trees.trees_of_root(seat, nbytes, root_host, double=algorithm == "double_tree")
        trees.broadcast(seat, below, out)
    share(seat, streams, holder=problem.root)
    return seat.steps.plan(name)
