"""Plans of reduce_scatter between hosts: rank r gets block r of all inputs, folded.

A lane carries the blocks of every so many-th rank of each host. Inside of a host every lane folds what
it carries; between hosts the lane of each host gets the blocks of its host, folded, by one of the
algorithms; inside again it hands on those that are not its own.
"""

from __future__ import annotations

from distdbg.runtime.plan.between import halving, ring
from distdbg.runtime.plan.between.host import fold_streams, give_blocks, length_of
from distdbg.runtime.plan.between.lane_position import LanePosition, Part
from distdbg.runtime.plan.build import Place, at_input, at_scratch, shifted
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_reduce_scatter(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    algorithm, leaders = split_name(name)
    position = LanePosition(problem, topology, leaders=leaders)
    steps, blocks = position.steps, problem.in_nbytes
    streams: list[list[Part]] = [
        [
            (at_input(0, rank), blocks[rank])
            for host in range(position.count)
            for rank in position.bundle(host, lane)
        ]
        for lane in range(position.lanes)
    ]
    own: Place = at_input()
    if position.is_alone and algorithm != "halving":
        steps.gate()
    else:
        total = length_of(streams[position.lane]) if position.lane >= 0 else 0
        own = at_scratch(steps.scratch(total))
        if position.is_alone:
            steps.gate()
            at = 0
            for place, nbytes in streams[0]:
                steps.copy(place, shifted(own, at), nbytes)
                at += nbytes
        else:
            fold_streams(position, streams, own)
    result = own
    begin_here = 0
    if position.lane >= 0:
        begins = [0]
        for host in range(position.count):
            begins.append(
                begins[-1] + sum(blocks[rank] for rank in position.bundle(host, position.lane))
            )
        begin_here = begins[position.host]
        nbytes = begins[position.host + 1] - begin_here
        result = _between(position, algorithm, own, begins)
        steps.divide(result, nbytes)

    def given(rank: int) -> Place:
        at = 0
        for one in position.bundle(position.host, position.lane):
            if one == rank:
                break
            at += blocks[one]
        return shifted(result, at)

    give_blocks(
        position, blocks.__getitem__, lambda rank: position.mates[position.lane_of(rank)], given
    )
    return steps.plan(name)


def _between(position: LanePosition, algorithm: str, own: Place, begins: list[int]) -> Place:
    """Fold what the lane carries over all hosts; say where the chunk of this host is then."""
    steps, host = position.steps, position.host

    def chunk(c: int) -> Place:
        # Alone on every host, a rank has the blocks in its input; a block is a chunk.
        return at_input(0, position.member(c)) if own == at_input() else shifted(own, begins[c])

    if algorithm == "pairwise":
        nbytes = begins[host + 1] - begins[host]
        work = at_scratch(steps.scratch(nbytes * position.count))
        ring.pairwise_reduce_scatter(position, begins.__getitem__, chunk, work)
        return work
    work = at_scratch(steps.scratch(begins[-1]))
    if algorithm == "ring":
        ring.reduce_scatter(position, begins.__getitem__, chunk, work, keeps=True)
        return shifted(work, begins[host])
    pairs = halving.Pairs(position.count)
    halving.reduce_scatter(position, lambda v: begins[pairs.first_host(v)], own, work, keeps=True)
    # A host that stands for two has the chunks of both.
    nbytes = begins[host + 1] - begins[host]
    if pairs.stands_for_two(host):
        length = begins[host + 2] - begins[host + 1]
        for offset, part in position.pieces(length):
            steps.send(position.member(host + 1), shifted(work, begins[host + 1] + offset), part)
    elif pairs.is_idle(host):
        for offset, part in position.pieces(nbytes):
            steps.recv(position.member(host - 1), shifted(work, begins[host] + offset), part)
    return shifted(work, begins[host])
