"""What happens inside of a host: ranks fold, hand out and collect through their slots.

Every host passes the same gates, whether or not there is something to do on it. Each function begins
with a gate that the caller may have made already: the one that compares fingerprints serves.

A lane's *stream* is what the lane carries, as parts of blocks one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distdbg.runtime.plan.between.lane_position import LanePosition, Part
from distdbg.runtime.plan.build import Place, at_input, at_output, at_slot, shifted
from distdbg.runtime.plan.cut import Piece, cut_rounds, pack_rounds


def window(parts: Sequence[Part], offset: int, nbytes: int) -> Iterator[tuple[Place, int, int]]:
    """Where [offset, offset + nbytes) of a stream lies: place, offset behind the first, length."""
    at = 0
    for place, length in parts:
        begin, end = max(at, offset), min(at + length, offset + nbytes)
        if begin < end:
            yield shifted(place, begin - at), begin - offset, end - begin
        at += length


def length_of(parts: Sequence[Part]) -> int:
    """How long a stream is."""
    return sum(nbytes for _, nbytes in parts)


def is_direct(position: LanePosition, nbytes: int) -> bool:
    """Whether ranks read each other's arrays, rather than slots."""
    return position.topology.single_copy and nbytes > position.topology.slots_nbytes


def fold_streams(position: LanePosition, streams: Sequence[Sequence[Part]], dst: Place) -> None:
    """The first gate; then the rank of lane i has its stream of the host's inputs, folded, in dst."""
    steps = position.steps
    totals = [length_of(parts) for parts in streams]
    if is_direct(position, sum(totals)):
        steps.gate()
        if position.lane >= 0:
            at = 0
            for place, nbytes in streams[position.lane]:
                steps.fold_host(place, shifted(dst, at), nbytes)
                at += nbytes
        steps.host_gate()
        return

    def take(piece: Piece) -> None:
        if piece.block == position.lane:
            steps.fold_host(at_slot(piece.slot_offset), shifted(dst, piece.offset), piece.nbytes)

    _through_slots(position, streams, totals, take)


def hand_out(position: LanePosition, streams: Sequence[Sequence[Part]], giver: int) -> None:
    """The first gate; then the rank of lane i on the giver's host has its stream in its output.

    Streams lie in the giver's output; its own lane's is there already.
    """
    steps = position.steps
    is_here = position.topology.layout.host_of(giver) == position.host
    place = position.topology.layout.place_of(giver)
    totals = [0 if lane == place else length_of(parts) for lane, parts in enumerate(streams)]
    takes = is_here and position.lane >= 0 and position.rank != giver
    if is_direct(position, sum(totals)):
        steps.gate()
        if takes:
            for src, nbytes in streams[position.lane]:
                steps.pull(giver, src, src, nbytes)
        steps.host_gate()
        return

    def take(piece: Piece) -> None:
        if takes and piece.block == position.lane:
            for dst, at, length in window(streams[piece.block], piece.offset, piece.nbytes):
                steps.pull(giver, at_slot(piece.slot_offset + at), dst, length)

    _through_slots(position, streams, totals, take, fills=position.rank == giver)


def _through_slots(
    position: LanePosition,
    streams: Sequence[Sequence[Part]],
    totals: Sequence[int],
    take: Callable[[Piece], None],
    *,
    fills: bool = True,
) -> None:
    """The first gate, and streams through the slots in as many rounds as these make necessary."""
    steps = position.steps
    rounds = pack_rounds(totals, position.topology.slot_nbytes, position.problem.itemsize)

    def fill(pieces: Sequence[Piece]) -> None:
        for piece in pieces if fills else ():
            for src, at, length in window(streams[piece.block], piece.offset, piece.nbytes):
                steps.copy(src, at_slot(piece.slot_offset + at), length)

    if rounds:
        fill(rounds[0])
    steps.gate()
    for k, pieces in enumerate(rounds):
        for piece in pieces:
            take(piece)
        if k + 1 < len(rounds):
            fill(rounds[k + 1])
            steps.host_gate()


def share(position: LanePosition, streams: Sequence[Sequence[Part]], *, holder: int = -1) -> None:
    """What the rank of lane i has of its stream in its output goes to the whole host's outputs.

    `holder` is a rank that has all of it already.
    """
    steps = position.steps
    if position.is_alone:
        return
    takes_from = [] if position.rank == holder else position.others_here()
    is_read = any(rank not in (position.rank, holder) for rank in position.mates)
    totals = [length_of(parts) for parts in streams]
    if is_direct(position, sum(totals)):
        steps.host_gate()
        for peer in takes_from:
            lane = position.topology.layout.place_of(peer)
            if lane < position.lanes:
                for place, nbytes in streams[lane]:
                    steps.pull(peer, place, place, nbytes)
        steps.host_gate()
        return
    rounds = cut_rounds(max(totals), position.topology.slot_nbytes, position.problem.itemsize)
    for offset, nbytes in rounds:
        if position.lane >= 0 and is_read:
            for src, at, length in window(streams[position.lane], offset, nbytes):
                steps.copy(src, at_slot(at), length)
        steps.host_gate()
        for peer in takes_from:
            lane = position.topology.layout.place_of(peer)
            if lane < position.lanes:
                for dst, at, length in window(streams[lane], offset, nbytes):
                    steps.pull(peer, at_slot(at), dst, length)


def collect_streams(
    position: LanePosition, streams: Sequence[Sequence[Part]], taker: int, own: Place
) -> None:
    """The taker puts the stream of every lane of its host, which each has at `own`, to its places."""
    steps = position.steps
    is_here = position.topology.layout.host_of(taker) == position.host
    if position.rank == taker and position.lane >= 0:
        for dst, at, length in window(streams[position.lane], 0, length_of(streams[position.lane])):
            steps.copy(shifted(own, at), dst, length)
    if position.is_alone:
        return
    totals = [length_of(parts) for parts in streams]
    for offset, nbytes in cut_rounds(
        max(totals), position.topology.slot_nbytes, position.problem.itemsize
    ):
        if is_here and position.lane >= 0 and position.rank != taker:
            length = min(totals[position.lane] - offset, nbytes)
            steps.copy(shifted(own, offset), at_slot(), length)
        steps.host_gate()
        if position.rank == taker:
            for peer in position.others_here():
                lane = position.topology.layout.place_of(peer)
                if lane < position.lanes:
                    for dst, at, length in window(streams[lane], offset, nbytes):
                        steps.pull(peer, at_slot(at), dst, length)


def swap_blocks(
    position: LanePosition,
    nbytes_of: Callable[[int], int],
    largest: int,
    takes: Callable[[int], Place | None],
    *,
    taker: int = -1,
) -> None:
    """The first gate; every rank's input goes to those of its host that have a place for it.

    `taker` is the only one that has, if there is only one.
    """
    steps, own = position.steps, nbytes_of(position.rank)
    # Nobody reads the slot of the only taker, nor slots on other hosts than its own.
    fills = len(position.mates) > 1 and (
        taker < 0 or (taker in position.mates and taker != position.rank)
    )
    if position.is_alone or is_direct(position, largest):
        steps.gate()
        _take_own(position, takes(position.rank), own)
        if position.is_alone:
            return
        for peer in position.others_here():
            dst = takes(peer)
            if dst is not None:
                steps.pull(peer, at_input(), dst, nbytes_of(peer))
        steps.host_gate()
        return
    rounds = cut_rounds(largest, position.topology.slot_nbytes, position.problem.itemsize)
    if rounds and fills:
        steps.copy(at_input(), at_slot(), min(own, rounds[0][1]))
    steps.gate()
    _take_own(position, takes(position.rank), own)
    for k, (offset, length) in enumerate(rounds):
        for peer in position.others_here():
            dst = takes(peer)
            if dst is not None:
                steps.pull(
                    peer, at_slot(), shifted(dst, offset), min(nbytes_of(peer) - offset, length)
                )
        if k + 1 < len(rounds):
            begin, following = rounds[k + 1]
            if fills:
                steps.copy(at_input(begin), at_slot(), min(own - begin, following))
            steps.host_gate()


def _take_own(position: LanePosition, dst: Place | None, nbytes: int) -> None:
    if dst is not None:
        position.steps.copy(at_input(), dst, nbytes)


def give_blocks(
    position: LanePosition,
    nbytes_of: Callable[[int], int],
    giver_of: Callable[[int], int],
    given: Callable[[int], Place],
) -> None:
    """Ranks get a block each, through the slot of the rank of their host that has it.

    `given` says where the giver has the block of a rank; blocks that a rank gives itself are copied.
    """
    steps = position.steps
    mine = [rank for rank in position.mates if giver_of(rank) == position.rank]
    if position.rank in mine and given(position.rank) != at_output():
        steps.copy(given(position.rank), at_output(), nbytes_of(position.rank))
    if position.is_alone:
        return
    # Every host passes as many gates as the one with the largest block and the fullest slot needs.
    layout = position.topology.layout
    crowd = max(-(-layout.largest // position.lanes), 1)
    largest = max((nbytes_of(rank) for rank in range(layout.size)), default=0)
    itemsize = position.problem.itemsize
    capacity = position.topology.slot_nbytes // crowd // itemsize * itemsize
    queues = 1
    if capacity == 0:
        # Not an element of each fits: one after the other.
        capacity, queues = position.topology.slot_nbytes // itemsize * itemsize, crowd
    giver = giver_of(position.rank)
    queue = [rank for rank in position.mates if giver_of(rank) == giver]
    for turn in range(queues):
        for offset, length in cut_rounds(largest, capacity, itemsize):
            for i, rank in enumerate(mine):
                if rank != position.rank and i % queues == turn:
                    part = min(nbytes_of(rank) - offset, length)
                    at = 0 if queues > 1 else i * capacity
                    steps.copy(shifted(given(rank), offset), at_slot(at), part)
            steps.host_gate()
            i = queue.index(position.rank)
            if giver != position.rank and i % queues == turn:
                part = min(nbytes_of(position.rank) - offset, length)
                at = 0 if queues > 1 else i * capacity
                steps.pull(giver, at_slot(at), at_output(offset), part)
