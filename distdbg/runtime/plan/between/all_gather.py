"""Plans of all_gather between hosts.

The ranks of a host swap their blocks; a lane carries those of every so many-th rank of each host:

    ring    around all hosts, from output to output
    bruck   packed, in rounds that double what a host has, for blocks that are small and many

Inside all ranks then collect what the lanes have brought.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import ring
from distdbg.runtime.plan.between.host import share, swap_blocks
from distdbg.runtime.plan.between.lane_position import LanePosition, Part
from distdbg.runtime.plan.build import Place, at_output, at_scratch
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_all_gather(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    position = LanePosition(problem, topology, leaders=leaders)
    blocks = problem.out_nbytes
    swap_blocks(position, blocks.__getitem__, max(blocks), lambda rank: at_output(0, rank))

    def parts(host: int, lane: int) -> list[Part]:
        return [(at_output(0, rank), blocks[rank]) for rank in position.bundle(host, lane)]

    if position.lane >= 0:
        if algorithm == "ring":
            ring.all_gather(position, lambda host: parts(host, position.lane))
        else:
            _bruck(
                position, [parts(position.host + i, position.lane) for i in range(position.count)]
            )
    if not position.is_alone:
        others = [host for host in range(position.count) if host != position.host]
        share(
            position,
            [[part for host in others for part in parts(host, i)] for i in range(position.lanes)],
        )
    return position.steps.plan(name)


def _bruck(position: LanePosition, bundles: list[list[Part]]) -> None:
    """`bundles[i]` are the parts of the i-th host behind this one; bundle 0 is there."""
    steps, count = position.steps, position.count
    begins = [0]
    for bundle in bundles:
        begins.append(begins[-1] + sum(nbytes for _, nbytes in bundle))
    base = steps.scratch(begins[-1])

    def packed(i: int) -> Place:
        return at_scratch(base + begins[i])

    at = 0
    for place, nbytes in bundles[0]:
        steps.copy(place, at_scratch(base + at), nbytes)
        at += nbytes
    have = 1
    while have < count:
        more = min(have, count - have)
        steps.send(position.member(position.host - have), packed(0), begins[more])
        steps.recv(
            position.member(position.host + have), packed(have), begins[have + more] - begins[have]
        )
        have += more
    for i in range(1, count):
        at = begins[i]
        for place, nbytes in bundles[i]:
            steps.copy(at_scratch(base + at), place, nbytes)
            at += nbytes
