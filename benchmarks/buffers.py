"""The arrays of one case on one rank: made, filled, and checked against the expected result.

A time of an op that computes something wrong is worth nothing, so every case is run once on known
numbers and compared before it is timed. Timing itself runs on zeros: in-place sums repeated a
million times would otherwise leave the numbers that float32 can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Buffers:
    """`source` is sent, `target` received; one array for the kinds that work in place."""

    kind: str
    source: Floats
    target: Floats

    def fill_with_zeros(self) -> None:
        """Write zeros (every page is touched, so no rank reads the shared zero page)."""
        self.source.fill(0)
        self.target.fill(0)

    def writer(self, rank: int) -> Callable[[], object]:
        """What a program does before the op: write what it sends, zeros again."""
        if self.kind == "barrier" or (self.kind == "broadcast" and rank != 0):
            return lambda: None
        return partial(self.source.fill, 0)

    def fill_with_pattern(self, rank: int, world_size: int) -> None:
        """Write numbers from which `expected` follows."""
        self.target.fill(-1)
        if self.kind == "all_to_all":
            for block, to in zip(np.split(self.source, world_size), range(world_size), strict=True):
                block.fill(rank * world_size + to)
        else:
            self.source.fill(rank + 1)

    def check(self, rank: int, world_size: int) -> None:
        """Compare `target` with what the op has to give after `fill_with_pattern`."""
        for block, value in self._expected(rank, world_size):
            if not bool((block == value).all()):
                wrong = block[block != value]
                raise RuntimeError(
                    f"{self.kind} of {self.target.nbytes} B gave a wrong result on rank {rank}:"
                    f" {wrong[0]} instead of {value} in {wrong.size} of {block.size} elements"
                )

    def _expected(self, rank: int, world_size: int) -> list[tuple[Floats, float]]:
        blocks = np.split(self.target, world_size) if self.target.size % world_size == 0 else []
        match self.kind:
            case "all_reduce" | "reduce_scatter":
                return [(self.target, world_size * (world_size + 1) / 2)]
            case "broadcast":
                return [(self.target, 1)]
            case "copy":
                return [(self.target, rank + 1)]
            case "all_gather":
                return [(block, peer + 1) for peer, block in enumerate(blocks)]
            case "all_to_all":
                return [(block, peer * world_size + rank) for peer, block in enumerate(blocks)]
            case "send_recv":
                return [(self.target, partner(rank) + 1)]
            case _:
                return []


def make_buffers(
    kind: str, count: int, world_size: int, zeros: Callable[..., Floats] = np.zeros
) -> Buffers:
    """Allocate the arrays of a case of `count` elements (see `Case.count`) by `zeros`."""
    block = count // world_size
    sizes = {"all_gather": (block, count), "reduce_scatter": (count, block)}
    source_count, target_count = sizes.get(kind, (count, count))
    source = zeros(source_count, dtype=np.float32)
    if kind in ("all_reduce", "broadcast"):
        return Buffers(kind, source, source)
    return Buffers(kind, source, zeros(target_count, dtype=np.float32))


def partner(rank: int) -> int:
    """The peer of a ping-pong: ranks play in pairs 0-1, 2-3, ..."""
    return rank ^ 1
