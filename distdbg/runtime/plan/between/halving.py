"""Plans by halves and doubles: as many rounds as the number of hosts has binary digits.

With a number of hosts that is no power of two, hosts 2j and 2j + 1 are a pair for the first few j: the
second hands its data to the first, which stands for both, and gets its result from it in the end.
So those that stand for a host or two have consecutive numbers in the order of the hosts, and every fold
has what comes from lower hosts on its left: ranks that fold the same data get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from distdbg.runtime.plan.between.lane_position import LanePosition
from distdbg.runtime.plan.build import Place, at_scratch, shifted


class Pairs:
    """The hosts that stand for others: `power` virtual hosts, the largest power of two among the hosts."""

    __slots__ = ("count", "power", "rest")

    def __init__(self, count: int) -> None:
        self.count = count
        self.power = 1 << (count.bit_length() - 1)
        self.rest = count - self.power

    def virtual(self, host: int) -> int:
        """The virtual host that a host is, or that stands for it."""
        return host // 2 if host < 2 * self.rest else host - self.rest

    def real(self, virtual: int) -> int:
        """The host that is a virtual host; where it stands for two, the first of them."""
        return 2 * virtual if virtual < self.rest else virtual + self.rest

    def is_idle(self, host: int) -> bool:
        """Whether another host stands for this one."""
        return host < 2 * self.rest and host % 2 == 1

    def stands_for_two(self, host: int) -> bool:
        """Whether the next host is idle, and this one stands for it."""
        return host < 2 * self.rest and host % 2 == 0

    def first_host(self, virtual: int) -> int:
        """The first host that a virtual one stands for; `power` gives the number of hosts."""
        return self.real(virtual)


def reduce_scatter(
    position: LanePosition, begin: Callable[[int], int], own: Place, work: Place, *, keeps: bool
) -> None:
    """Chunk v of all hosts, folded, comes to lie in `work` of virtual host v; see `ring`."""
    steps, host, pairs = position.steps, position.host, Pairs(position.count)
    total = begin(pairs.power)
    if pairs.is_idle(host):
        _send(position, host - 1, own, work, 0, total, keeps=keeps)
        return
    is_own = True
    if pairs.stands_for_two(host):
        for offset, nbytes in position.pieces(total):
            steps.recv(position.member(host + 1), shifted(work, offset), nbytes)
            steps.fold_before(shifted(work, offset), shifted(own, offset), nbytes)
        is_own = False
    virtual = pairs.virtual(host)
    low, high = 0, pairs.power
    spare: Place | None = None
    while high - low > 1:
        middle = (low + high) // 2
        is_low = virtual < middle
        peer = pairs.real(virtual + (middle - low) * (1 if is_low else -1))
        keep, give = ((low, middle), (middle, high))[:: 1 if is_low else -1]
        _send(
            position, peer, own if is_own else work, work, begin(give[0]), begin(give[1]),
            keeps=keeps or not is_own,
        )  # fmt: skip
        at, length = begin(keep[0]), begin(keep[1]) - begin(keep[0])
        if not is_own and spare is None:
            spare = at_scratch(steps.scratch(length))
        for offset, nbytes in position.pieces(length):
            here = shifted(work, at + offset)
            if is_own:
                mine = shifted(own, at + offset)
                steps.recv(position.member(peer), here, nbytes)
                (steps.fold_before if is_low else steps.fold_after)(here, mine, nbytes)
            else:
                assert spare is not None
                taken = shifted(spare, offset)
                steps.recv(position.member(peer), taken, nbytes)
                (steps.fold_after if is_low else steps.fold_before)(here, taken, nbytes)
        is_own = False
        low, high = keep


def _send(
    position: LanePosition, peer: int, src: Place, work: Place, begin: int, end: int, *, keeps: bool
) -> None:
    """Send a range, from a copy in `work` when the plan writes to the source later."""
    if not keeps:
        position.steps.copy(shifted(src, begin), shifted(work, begin), end - begin)
        src = work
    for offset, nbytes in position.pieces(end - begin):
        position.steps.send(position.member(peer), shifted(src, begin + offset), nbytes)


def all_gather(position: LanePosition, begin: Callable[[int], int], out: Place) -> None:
    """Chunk v, which virtual host v has at its place in `out`, comes to lie there on all hosts."""
    steps, host, pairs = position.steps, position.host, Pairs(position.count)
    total = begin(pairs.power)
    if pairs.is_idle(host):
        for offset, nbytes in position.pieces(total):
            steps.recv(position.member(host - 1), shifted(out, offset), nbytes)
        return
    virtual, width = pairs.virtual(host), 1
    while width < pairs.power:
        low = virtual & ~(width - 1)
        theirs = low ^ width
        peer = position.member(pairs.real(virtual ^ width))
        for offset, nbytes in position.pieces(begin(low + width) - begin(low)):
            steps.send(peer, shifted(out, begin(low) + offset), nbytes)
        for offset, nbytes in position.pieces(begin(theirs + width) - begin(theirs)):
            steps.recv(peer, shifted(out, begin(theirs) + offset), nbytes)
        width *= 2
    if pairs.stands_for_two(host):
        for offset, nbytes in position.pieces(total):
            steps.send(position.member(host + 1), shifted(out, offset), nbytes)


def all_reduce(position: LanePosition, own: Place, out: Place, nbytes: int) -> None:
    """By doubling: hosts exchange and fold all bytes in every round."""
    steps, host, pairs = position.steps, position.host, Pairs(position.count)
    pieces = position.pieces(nbytes)
    mine = at_scratch(steps.scratch(nbytes))

    def send(to: int, src: Place) -> None:
        for offset, length in pieces:
            steps.send(position.member(to), shifted(src, offset), length)

    def fold(source: int, *, is_lower: bool) -> Place:
        taken = at_scratch(steps.scratch(nbytes))
        for offset, length in pieces:
            here = shifted(taken, offset)
            steps.recv(position.member(source), here, length)
            (steps.fold_after if is_lower else steps.fold_before)(
                here, shifted(mine, offset), length
            )
        return taken

    steps.copy(own, mine, nbytes)
    if pairs.is_idle(host):
        send(host - 1, mine)
        for offset, length in pieces:
            steps.recv(position.member(host - 1), shifted(out, offset), length)
        return
    if pairs.stands_for_two(host):
        mine = fold(host + 1, is_lower=False)
    virtual, width = pairs.virtual(host), 1
    while width < pairs.power:
        other = virtual ^ width
        send(pairs.real(other), mine)
        mine = fold(pairs.real(other), is_lower=other < virtual)
        width *= 2
    steps.divide(mine, nbytes)
    steps.copy(mine, out, nbytes)
    if pairs.stands_for_two(host):
        send(host + 1, mine)
