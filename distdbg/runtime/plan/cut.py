"""How bytes are cut: a range into shares of ranks, and blocks into rounds that fit a slot.

Every cut is on a whole element, and on a cache line where the pieces are large enough for it to
matter (two ranks that write the same line slow each other down).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LINE_NBYTES = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one block, and where in the slot it travels."""

    block: int
    offset: int
    slot_offset: int
    nbytes: int


def alignment(nbytes: int, itemsize: int) -> int:
    """What to align the cuts of a piece of about `nbytes` to."""
    return LINE_NBYTES if nbytes >= 4 * LINE_NBYTES and LINE_NBYTES % itemsize == 0 else itemsize


def cut_shares(nbytes: int, parts: int, itemsize: int) -> list[tuple[int, int]]:
    """Cut `nbytes` into `parts` consecutive (offset, nbytes); the last ones may be empty."""
    align = alignment(nbytes // parts, itemsize)
    share = -(-nbytes // (parts * align)) * align
    return [
        (min(p * share, nbytes), min((p + 1) * share, nbytes) - min(p * share, nbytes))
        for p in range(parts)
    ]


def cut_rounds(nbytes: int, capacity: int, itemsize: int) -> list[tuple[int, int]]:
    """Cut `nbytes` into the fewest rounds of at most `capacity`, about equal: (offset, nbytes)."""
    if nbytes <= capacity:
        return [(0, nbytes)] if nbytes else []
    align = alignment(capacity, itemsize)
    largest = capacity // align * align
    count = -(-nbytes // largest)
    length = -(-nbytes // (count * align)) * align
    return [(begin, min(length, nbytes - begin)) for begin in range(0, nbytes, length)]


def pack_rounds(blocks: Sequence[int], capacity: int, itemsize: int) -> list[list[Piece]]:
    """Pack all `blocks` into rounds of at most `capacity`, with a part of each block in a round.

    So that all ranks, who wait for one block each, are served in every round. When the capacity
    is smaller than one element of each block, a round serves only some of them.
    """
    if sum(blocks) <= capacity:
        length = max(blocks, default=0)
    else:
        fair = capacity // len(blocks)
        align = alignment(fair, itemsize)
        length = max(fair // align * align, itemsize)
    rounds: list[list[Piece]] = []
    current: list[Piece] = []
    used = 0
    for begin in range(0, max(blocks, default=0), max(length, 1)):
        for block, nbytes in enumerate(blocks):
            part = min(length, nbytes - begin)
            if part <= 0:
                continue
            if used + part > capacity:
                rounds.append(current)
                current, used = [], 0
            current.append(Piece(block, begin, used, part))
            used += part
    if current:
        rounds.append(current)
    return rounds
