"""Around the ring of a lane: every host talks to the next one and listens to the one before.

Both halves move all bytes but a host's own once, which no algorithm can beat; they take as many rounds
as there are hosts, which is what small data cannot afford.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distdbg.runtime.plan.between.lane_position import LanePosition, Part
from distdbg.runtime.plan.build import Place, shifted

#: Where chunk c begins in the lane's stream; chunk c ends where c + 1 begins.
Begin = Callable[[int], int]


def reduce_scatter(
    position: LanePosition, begin: Begin, own: Callable[[int], Place], work: Place, *, keeps: bool
) -> None:
    """Chunk c of all hosts, folded, comes to lie in `work` of host c.

    `own` says where a chunk of this host lies. `keeps`: the plan never writes there, so that it may
    be sent from. The fold of chunk c begins on host c + 1 and goes around.
    """
    steps, count, host = position.steps, position.count, position.host
    next_one, before = position.member(host + 1), position.member(host - 1)

    def pieces(c: int) -> list[tuple[int, int]]:
        return position.pieces(begin(c + 1) - begin(c))

    first = (host - 1) % count
    src = own(first)
    if not keeps:
        steps.copy(src, shifted(work, begin(first)), begin(first + 1) - begin(first))
        src = shifted(work, begin(first))
    for offset, nbytes in pieces(first):
        steps.send(next_one, shifted(src, offset), nbytes)
    for turn in range(count - 1):
        c = (host - turn - 2) % count
        for offset, nbytes in pieces(c):
            at = shifted(work, begin(c) + offset)
            steps.recv(before, at, nbytes)
            steps.fold_after(at, shifted(own(c), offset), nbytes)
            if turn < count - 2:
                steps.send(next_one, at, nbytes)


def all_gather(position: LanePosition, parts: Callable[[int], Sequence[Part]]) -> None:
    """The parts of host h, which it has at their places, come to lie there on all hosts."""
    steps, count, host = position.steps, position.count, position.host
    next_one, before = position.member(host + 1), position.member(host - 1)
    for place, nbytes in position.cut(parts(host)):
        steps.send(next_one, place, nbytes)
    for turn in range(count - 1):
        for place, nbytes in position.cut(parts((host - turn - 1) % count)):
            steps.recv(before, place, nbytes)
            if turn < count - 2:
                steps.send(next_one, place, nbytes)


def pairwise_reduce_scatter(
    position: LanePosition, begin: Begin, own: Callable[[int], Place], work: Place
) -> None:
    """The same result, folded in the order of hosts: each host sends each other one its chunk.

    What is received lies in `work` at the chunks of those that sent it, so `work` holds as many chunks
    as there are hosts, each as large as this host's.
    """
    steps, count, host = position.steps, position.count, position.host
    nbytes = begin(host + 1) - begin(host)
    for turn in range(1, count):
        to, source = (host + turn) % count, (host - turn) % count
        for offset, length in position.pieces(begin(to + 1) - begin(to)):
            steps.send(position.member(to), shifted(own(to), offset), length)
        for offset, length in position.pieces(nbytes):
            steps.recv(position.member(source), shifted(work, source * nbytes + offset), length)
    steps.copy(own(host), shifted(work, host * nbytes), nbytes)
    for source in range(1, count):
        steps.fold_after(work, shifted(work, source * nbytes), nbytes)
