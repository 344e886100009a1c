"""Plans of broadcast between hosts: root shares its data out over the lanes of its host.

Every lane passes its share on along trees of hosts; inside all ranks collect the shares of all lanes.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import trees
from distdbg.runtime.plan.between.host import hand_out, share
from distdbg.runtime.plan.between.lane_position import LanePosition, Part, Shares
from distdbg.runtime.plan.build import at_output
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_broadcast(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    position = LanePosition(problem, topology, leaders=leaders)
    shares = Shares(problem.out_nbytes[0], position.lanes, problem.itemsize)
    streams: list[list[Part]] = [
        [(at_output(shares.begin(i)), shares.length(i))] for i in range(position.lanes)
    ]
    if position.is_alone:
        position.steps.gate()
    else:
        hand_out(position, streams, problem.root)
    if position.lane >= 0:
        [(out, nbytes)] = streams[position.lane]
        root_host = topology.layout.host_of(problem.root)
        below = trees.trees_of_root(position, nbytes, root_host, double=algorithm == "double_tree")
        trees.broadcast(position, below, out)
    share(position, streams, holder=problem.root)
    return position.steps.plan(name)
