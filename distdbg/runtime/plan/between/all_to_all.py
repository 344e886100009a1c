"""Plans of all_to_all between hosts: input block p of rank r becomes output block r of rank p.

    pairwise  a message for every rank of another host; inside of a host the exchange of one host. Where each
              host has one rank, blocks go with the gate, by the slots, that are short enough to gain by it
    bruck     for blocks of one size: ranks of a host first swap what is for the same place of all hosts,
              then each lane exchanges packed blocks in as many rounds as the hosts' number has digits

A rank knows the sizes of its own blocks only, so nothing may depend on them: pairwise it is, unless
DISTDBG_ALGO says that all blocks of all ranks have one size. By which way a block goes follows from its own
size, which its two ranks know. Messages are sent even when they are empty, so that sizes which do not fit
are found and nobody waits for what never comes.
"""

from __future__ import annotations

from dataclasses import replace

from distdbg.runtime.plan.between.lane_position import LanePosition
from distdbg.runtime.plan.between.mirror import with_sizes
from distdbg.runtime.plan.build import Place, at_input, at_output, at_scratch, at_slot
from distdbg.runtime.plan.cut import cut_rounds
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan, StepKind

#: Blocks in a slot begin at multiples of this.
_ALIGN = 64
#: Longer ones do not stay in the cache.
_MAX_SHORT_NBYTES = 256 << 10


def plan_all_to_all(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan by the algorithm of that name."""
    position = LanePosition(problem, topology)
    return bruck(position) if name == "bruck" and can_bruck(position) else pairwise(position)


def can_bruck(position: LanePosition) -> bool:
    """Whether blocks have one size, and hosts one number of ranks."""
    problem = position.problem
    return position.lanes == position.topology.layout.largest and (
        len({*problem.in_nbytes, *problem.out_nbytes}) == 1
    )


def pairwise(position: LanePosition) -> Plan:
    """The ranks at the same distance behind and before exchange with one another."""
    steps, problem, rank, size = (
        position.steps,
        position.problem,
        position.rank,
        position.problem.size,
    )
    short = short_nbytes(position)

    def is_short(nbytes: int) -> bool:
        return 0 < short >= nbytes

    def in_slot(source: int, target: int) -> Place:
        return at_slot((target - source - 1) % size * short)

    for peer in range(size):
        if peer != rank and is_short(problem.in_nbytes[peer]):
            steps.copy(at_input(0, peer), in_slot(rank, peer), problem.in_nbytes[peer])
    steps.gate()
    steps.exchange(sum(problem.in_nbytes[mate] for mate in position.mates))
    for turn in range(1, position.count):
        to = position.hosts[(position.host + turn) % position.count]
        source = position.hosts[(position.host - turn) % position.count]
        # Not all ranks of a host begin with the same one.
        for i in range(len(to)):
            peer = to[(position.place + i) % len(to)]
            if not is_short(problem.in_nbytes[peer]):
                steps.message(StepKind.SEND, peer, at_input(0, peer), problem.in_nbytes[peer])
        for i in range(len(source)):
            peer = source[(position.place - i) % len(source)]
            nbytes = problem.out_nbytes[peer]
            if is_short(nbytes):
                steps.pull(peer, in_slot(peer, rank), at_output(0, peer), nbytes)
            else:
                steps.message(StepKind.RECV, peer, at_output(0, peer), nbytes)
    plan = steps.plan("pairwise")
    return replace(plan, steps=with_sizes(plan.steps))


def short_nbytes(position: LanePosition) -> int:
    """Up to here a block goes by the slots; 0: none does.

    That saves messages, for two copies, and every host gets the blocks of all, whatever they take of the
    room that each has. Where hosts have several ranks, these need their slots for one another.
    """
    link, size = position.topology.link, position.problem.size
    if not position.is_alone or size < 2:
        return 0
    gain_s = link.latency_s + 2 * link.message_s
    if size > 2:
        # Messages go with the gate as well: no round is saved, but one message to about every second peer.
        gain_s = min(gain_s, 2 * (size - 2) * link.message_s)
    copies_s = 2 * (size - 1) * link.slot_copy_byte_s
    others_s = (size - 1) * (size - 2) * link.byte_s
    most = min(
        int(gain_s / (copies_s + others_s)),
        position.topology.slot_nbytes // (size - 1),
        _MAX_SHORT_NBYTES,
    )
    return most // _ALIGN * _ALIGN


def bruck(position: LanePosition) -> Plan:
    """Packed: block i of the rank's bundles goes i hosts further, by the digits of i."""
    steps, count, width = position.steps, position.count, position.lanes
    nbytes = position.problem.in_nbytes[0]
    bundle = width * nbytes
    base = steps.scratch(count * bundle)
    # Bundle i: what the ranks of this host have for this place of the host i behind.
    _swap_places(position, base, nbytes)
    bit = 1
    while bit < count:
        moving = [i for i in range(count) if i & bit]
        out, into = (at_scratch(steps.scratch(len(moving) * bundle)) for _ in range(2))
        for k, i in enumerate(moving):
            steps.copy(at_scratch(base + i * bundle), _at(out, k * bundle), bundle)
        steps.send(position.member(position.host + bit), out, len(moving) * bundle)
        steps.recv(position.member(position.host - bit), into, len(moving) * bundle)
        for k, i in enumerate(moving):
            steps.copy(_at(into, k * bundle), at_scratch(base + i * bundle), bundle)
        bit *= 2
    # Bundle i has come i hosts far.
    for i in range(count):
        for place, rank in enumerate(position.hosts[(position.host - i) % count]):
            steps.copy(at_scratch(base + i * bundle + place * nbytes), at_output(0, rank), nbytes)
    return steps.plan("bruck")


def _at(place: Place, by: int) -> Place:
    return place[0], place[1], place[2] + by


def _swap_places(position: LanePosition, base: int, nbytes: int) -> None:
    """The first gate; gather from the ranks of this host what they have for this place."""
    steps, width = position.steps, position.lanes
    bundle = width * nbytes

    def mine(i: int, place: int) -> int:
        return base + i * bundle + place * nbytes

    def wanted(i: int, place: int) -> int:
        return position.hosts[(position.host + i) % position.count][place]

    steps.gate()
    for i in range(position.count):
        steps.copy(
            at_input(0, wanted(i, position.place)), at_scratch(mine(i, position.place)), nbytes
        )
        for other in range(1, width):
            give, take = (position.place + other) % width, (position.place - other) % width
            for offset, length in cut_rounds(
                nbytes, position.topology.slot_nbytes, position.problem.itemsize
            ):
                steps.copy(at_input(offset, wanted(i, give)), at_slot(), length)
                steps.host_gate()
                steps.pull(
                    position.mates[take], at_slot(), at_scratch(mine(i, take) + offset), length
                )
