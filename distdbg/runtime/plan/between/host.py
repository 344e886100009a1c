"""What happens inside of a host: ranks fold, hand out and collect through their slots.

Every host passes the same gates, whether or not there is something to do on it. Each function begins
with a gate that the caller may have made already: the one that compares fingerprints serves.

A lane's *stream* is what the lane carries, as parts of blocks one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distdbg.runtime.plan.between.seat import LanePosition, Part
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


def is_direct(seat: LanePosition, nbytes: int) -> bool:
    """Whether ranks read each other's arrays, rather than slots."""
    return seat.topology.single_copy and nbytes > seat.topology.slots_nbytes


def fold_streams(seat: LanePosition, streams: Sequence[Sequence[Part]], dst: Place) -> None:
    """The first gate; then the rank of lane i has its stream of the host's inputs, folded, in dst."""
    steps = seat.steps
    totals = [length_of(parts) for parts in streams]
    if is_direct(seat, sum(totals)):
        steps.gate()
        if seat.lane >= 0:
            at = 0
            for place, nbytes in streams[seat.lane]:
                steps.fold_host(place, shifted(dst, at), nbytes)
                at += nbytes
        steps.host_gate()
        return
    rounds = pack_rounds(totals, seat.topology.slot_nbytes, seat.problem.itemsize)

    def fill(pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            for src, at, length in window(streams[piece.block], piece.offset, piece.nbytes):
                steps.copy(src, at_slot(piece.slot_offset + at), length)

    if rounds:
        fill(rounds[0])
    steps.gate()
    for k, pieces in enumerate(rounds):
        for piece in pieces:
            if piece.block == seat.lane:
                steps.fold_host(
                    at_slot(piece.slot_offset), shifted(dst, piece.offset), piece.nbytes
                )
        if k + 1 < len(rounds):
            fill(rounds[k + 1])
            steps.host_gate()


def hand_out(seat: LanePosition, streams: Sequence[Sequence[Part]], giver: int) -> None:
    """The first gate; then the rank of lane i on the giver's host has its stream in its output.

    Streams lie in the giver's output; its own lane's is there already.
    """
    steps = seat.steps
    is_here = seat.topology.layout.host_of(giver) == seat.host
    place = seat.topology.layout.place_of(giver)
    totals = [0 if lane == place else length_of(parts) for lane, parts in enumerate(streams)]
    takes = is_here and seat.lane >= 0 and seat.rank != giver
    if is_direct(seat, sum(totals)):
        steps.gate()
        if takes:
            for src, nbytes in streams[seat.lane]:
                steps.pull(giver, src, src, nbytes)
        steps.host_gate()
        return
    rounds = pack_rounds(totals, seat.topology.slot_nbytes, seat.problem.itemsize)

    def fill(pieces: Sequence[Piece]) -> None:
        if seat.rank == giver:
            for piece in pieces:
                for src, at, length in window(streams[piece.block], piece.offset, piece.nbytes):
                    steps.copy(src, at_slot(piece.slot_offset + at), length)

    if rounds:
        fill(rounds[0])
    steps.gate()
    for k, pieces in enumerate(rounds):
        for piece in pieces:
            if takes and piece.block == seat.lane:
                for dst, at, length in window(streams[piece.block], piece.offset, piece.nbytes):
                    steps.pull(giver, at_slot(piece.slot_offset + at), dst, length)
        if k + 1 < len(rounds):
            fill(rounds[k + 1])
            steps.host_gate()


def share(seat: LanePosition, streams: Sequence[Sequence[Part]], *, holder: int = -1) -> None:
    """What the rank of lane i has of its stream in its output goes to the whole host's outputs.

    `holder` is a rank that has all of it already.
    """
    steps = seat.steps
    if seat.is_alone:
        return
    takes_from = [] if seat.rank == holder else seat.others_here()
    is_read = any(rank not in (seat.rank, holder) for rank in seat.mates)
    totals = [length_of(parts) for parts in streams]
    if is_direct(seat, sum(totals)):
        steps.host_gate()
        for peer in takes_from:
            lane = seat.topology.layout.place_of(peer)
            if lane < seat.lanes:
                for place, nbytes in streams[lane]:
                    steps.pull(peer, place, place, nbytes)
        steps.host_gate()
        return
    rounds = cut_rounds(max(totals), seat.topology.slot_nbytes, seat.problem.itemsize)
    for offset, nbytes in rounds:
        if seat.lane >= 0 and is_read:
            for src, at, length in window(streams[seat.lane], offset, nbytes):
                steps.copy(src, at_slot(at), length)
        steps.host_gate()
        for peer in takes_from:
            lane = seat.topology.layout.place_of(peer)
            if lane < seat.lanes:
                for dst, at, length in window(streams[lane], offset, nbytes):
                    steps.pull(peer, at_slot(at), dst, length)


def collect_streams(
    seat: LanePosition, streams: Sequence[Sequence[Part]], taker: int, own: Place
) -> None:
    """The taker puts the stream of every lane of its host, which each has at `own`, to its places."""
    steps = seat.steps
    is_here = seat.topology.layout.host_of(taker) == seat.host
    if seat.rank == taker and seat.lane >= 0:
        for dst, at, length in window(streams[seat.lane], 0, length_of(streams[seat.lane])):
            steps.copy(shifted(own, at), dst, length)
    if seat.is_alone:
        return
    totals = [length_of(parts) for parts in streams]
    for offset, nbytes in cut_rounds(max(totals), seat.topology.slot_nbytes, seat.problem.itemsize):
        if is_here and seat.lane >= 0 and seat.rank != taker:
            length = min(totals[seat.lane] - offset, nbytes)
            steps.copy(shifted(own, offset), at_slot(), length)
        steps.host_gate()
        if seat.rank == taker:
            for peer in seat.others_here():
                lane = seat.topology.layout.place_of(peer)
                if lane < seat.lanes:
                    for dst, at, length in window(streams[lane], offset, nbytes):
                        steps.pull(peer, at_slot(at), dst, length)


def swap_blocks(
    seat: LanePosition,
    nbytes_of: Callable[[int], int],
    largest: int,
    takes: Callable[[int], Place | None],
    *,
    taker: int = -1,
) -> None:
    """The first gate; every rank's input goes to those of its host that have a place for it.

    `taker` is the only one that has, if there is only one.
    """
    steps, own = seat.steps, nbytes_of(seat.rank)
    # Nobody reads the slot of the only taker, nor slots on other hosts than its own.
    fills = len(seat.mates) > 1 and (taker < 0 or (taker in seat.mates and taker != seat.rank))
    if seat.is_alone or is_direct(seat, largest):
        steps.gate()
        _take_own(seat, takes(seat.rank), own)
        if seat.is_alone:
            return
        for peer in seat.others_here():
            dst = takes(peer)
            if dst is not None:
                steps.pull(peer, at_input(), dst, nbytes_of(peer))
        steps.host_gate()
        return
    rounds = cut_rounds(largest, seat.topology.slot_nbytes, seat.problem.itemsize)
    if rounds and fills:
        steps.copy(at_input(), at_slot(), min(own, rounds[0][1]))
    steps.gate()
    _take_own(seat, takes(seat.rank), own)
    for k, (offset, length) in enumerate(rounds):
        for peer in seat.others_here():
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


def _take_own(seat: LanePosition, dst: Place | None, nbytes: int) -> None:
    if dst is not None:
        seat.steps.copy(at_input(), dst, nbytes)


def give_blocks(
    seat: LanePosition,
    nbytes_of: Callable[[int], int],
    giver_of: Callable[[int], int],
    given: Callable[[int], Place],
) -> None:
    """Ranks get a block each, through the slot of the rank of their host that has it.

    `given` says where the giver has the block of a rank; blocks that a rank gives itself are copied.
    """
    steps = seat.steps
    mine = [rank for rank in seat.mates if giver_of(rank) == seat.rank]
    if seat.rank in mine and given(seat.rank) != at_output():
        steps.copy(given(seat.rank), at_output(), nbytes_of(seat.rank))
    if seat.is_alone:
        return
    # Every host passes as many gates as the one with the largest block and the fullest slot needs.
    layout = seat.topology.layout
    crowd = max(-(-layout.largest // seat.lanes), 1)
    largest = max((nbytes_of(rank) for rank in range(layout.size)), default=0)
    itemsize = seat.problem.itemsize
    capacity = seat.topology.slot_nbytes // crowd // itemsize * itemsize
    queues = 1
    if capacity == 0:
        # Not an element of each fits: one after the other.
        capacity, queues = seat.topology.slot_nbytes // itemsize * itemsize, crowd
    giver = giver_of(seat.rank)
    queue = [rank for rank in seat.mates if giver_of(rank) == giver]
    for turn in range(queues):
        for offset, length in cut_rounds(largest, capacity, itemsize):
            for i, rank in enumerate(mine):
                if rank != seat.rank and i % queues == turn:
                    part = min(nbytes_of(rank) - offset, length)
                    at = 0 if queues > 1 else i * capacity
                    steps.copy(shifted(given(rank), offset), at_slot(at), part)
            steps.host_gate()
            i = queue.index(seat.rank)
            if giver != seat.rank and i % queues == turn:
                part = min(nbytes_of(seat.rank) - offset, length)
                at = 0 if queues > 1 else i * capacity
                steps.pull(giver, at_slot(at), at_output(offset), part)
