"""The lists in which torch hands over tensors: a rank has one device here, so most hold one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.errors import UsageError

Tensor = Any


def only(tensors: Sequence[Tensor] | Tensor, what: str) -> Tensor:
    """Return the tensor of a list of one; a rank has one device here."""
    if not isinstance(tensors, (list, tuple)):
        return tensors
    if len(tensors) != 1:
        raise UsageError(f"{what}: expected a list of one tensor, got {len(tensors)}")
    return tensors[0]


def unnest(lists: Sequence[Any], single: Any, what: str) -> tuple[Sequence[Tensor], Tensor]:
    """Take ([[a, b]], [x]) and (([a, b], x)) to ([a, b], x)."""
    if not isinstance(single, (list, tuple)):
        return lists, single
    tensor = only(single, what)
    if len(lists) == 0:
        return [], tensor
    return only(lists, what), tensor


def pairs(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], what: str
) -> list[tuple[Tensor, Tensor]]:
    """Take two lists of equal length to pairs."""
    if len(outputs) != len(inputs):
        raise UsageError(f"{what}: {len(outputs)} outputs and {len(inputs)} inputs were given")
    return list(zip(outputs, inputs, strict=True))
