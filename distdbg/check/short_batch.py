"""Tells whether an array that differs looks like a last batch that is shorter than the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: So many ops of the group came before: a loop, and not the first arrays of a program.
_MANY: Final = 8


def size_hint(where: str, *, is_short_batch: bool) -> str:
    """What to look at where arrays have other sizes; `where` is ' on rank 3' or ''."""
    tail = "; pad or drop a shorter last batch" if is_short_batch else ""
    return f"see what sets the size of the arrays{where}{tail}"


def other_array_hint(where: str) -> str:
    """Where dtype and shape differ at one line."""
    return f"another array{where}: see whether the order or the number of the calls at that line differs"


def several_sizes_hint(where: str) -> str:
    """Where arrays of several sizes come to one line, as in a loop over parameters."""
    return (
        f"arrays of several sizes come to that line: see whether it is the same one{where} (order, number of "
        "calls), then what sets its size"
    )


def is_short_batch(differs: object, usual: object, seq: int) -> bool:
    """Whether, after many ops, only the first extent of the shape that differs is smaller."""
    mine, theirs = _extents(differs), _extents(usual)
    if seq <= _MANY or not mine or len(mine) != len(theirs):
        return False
    return mine[0] < theirs[0] and mine[1:] == theirs[1:]


def _extents(shape: object) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        return ()
    extents = tuple(shape)
    return extents if all(isinstance(extent, int) for extent in extents) else ()
