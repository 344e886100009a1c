"""What all ranks draw alike, and what each rank's arrays hold.

Contents follow from step, rank and block alone, so that every rank knows what all others bring.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from distdbg import ProcessGroup

Array = npt.NDArray[Any]
Item = TypeVar("Item")

MOST_COUNT: Final = 20_000
#: Lengths around the sizes where the library changes its ways; the small ones more often.
COUNTS: Final = (
    0,
    1,
    1,
    2,
    2,
    3,
    3,
    7,
    8,
    8,
    17,
    17,
    64,
    64,
    255,
    255,
    1000,
    1000,
    4097,
    MOST_COUNT,
)
FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
INTEGERS: Final = ("int8", "uint8", "int32", "int64")
DTYPES: Final = (*FLOATS, *INTEGERS, "complex64")

_TYPES: Final = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in DTYPES}
#: From 0 to 4; with what is added at most 16, so that the sum of four is exact in any of the types.
_BASES: Final = {name: (np.arange(MOST_COUNT) % 5).astype(dtype) for name, dtype in _TYPES.items()}
_ADDED: Final = {name: np.arange(13).astype(dtype) for name, dtype in _TYPES.items()}
_BITS: Final = 512


class Draw:
    """The chance of one step: a large number that is used up, so that a step costs one draw."""

    __slots__ = ("_left",)

    def __init__(self, common: random.Random) -> None:
        self._left = common.getrandbits(_BITS)

    def below(self, count: int) -> int:
        self._left, value = divmod(self._left, count)
        return value

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == 0

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]


@dataclass(slots=True)
class Step:
    """One step as one member of its group sees it."""

    number: int
    draw: Draw
    group: ProcessGroup
    #: Global ranks by group rank.
    ranks: tuple[int, ...]
    rank: int
    is_async: bool
    dtype: str

    @property
    def size(self) -> int:
        return len(self.ranks)

    def count(self) -> int:
        return self.draw.choice(COUNTS)

    def brought(self, rank: int, count: int, block: int = 0) -> Array:
        """What group rank `rank` brings as its block of that number; a new array."""
        added = (self.number * 7 + rank * 3 + block * 5) % 13
        made: Array = _BASES[self.dtype][:count] + _ADDED[self.dtype][added]
        return made

    def everyone(self, count: int) -> list[Array]:
        return [self.brought(rank, count) for rank in range(self.size)]

    def mine(self, count: int, block: int = 0) -> Array:
        return self.brought(self.rank, count, block)

    def room(self, count: int) -> Array:
        """An output: what is in it before is in no result."""
        return np.full(count, 99, _TYPES[self.dtype])

    def root(self, name: str) -> tuple[int, dict[str, int]]:
        """A group rank, and how the call names it."""
        root = self.draw.below(self.size)
        by_group = self.draw.chance(2)
        return root, {f"group_{name}": root} if by_group else {name: self.ranks[root]}


class Wrong(AssertionError):
    """A result is not what it must be."""


def check_equal(step: Step, what: str, got: Array, expected: Array) -> None:
    if (
        got.shape != expected.shape
        or got.dtype != expected.dtype
        or not np.array_equal(got, expected)
    ):
        at = "its shape" if got.shape != expected.shape else np.flatnonzero(got != expected)[:4]
        raise Wrong(
            f"step {step.number}: {what} of {step.dtype} on ranks {step.ranks}: wrong at {at}: "
            f"{got.reshape(-1)[:8]} instead of {expected.reshape(-1)[:8]}"
        )
