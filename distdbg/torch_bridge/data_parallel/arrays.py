"""Tensors as a Reducer wants them; see distdbg/runtime/parallel/reducer/arrays.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from distdbg.errors import UsageError


class TorchArrays:
    """Implements Arrays for torch tensors."""

    def make(self, like: Any, count: int) -> Any:
        """Return a flat tensor of zeros."""
        return torch.zeros(count, dtype=like.dtype, device=like.device)

    def part(self, flat: Any, begin: int, like: Any) -> Any:
        """Return the view of another tensor's shape; in its memory order, where that has no holes."""
        count = like.numel()
        if like.is_contiguous() or not _is_dense(like):
            return flat[begin : begin + count].view(like.shape)
        return flat.as_strided(like.shape, like.stride(), begin)

    def put(self, into: Any, gradient: Any, divisor: float) -> None:
        """Write a gradient divided by `divisor`, in torch's way: to the last bit the same."""
        if gradient.requires_grad:
            gradient = gradient.detach()
        if gradient.data_ptr() == into.data_ptr():
            if divisor != 1:
                into.div_(divisor)
        elif divisor == 1:
            into.copy_(gradient)
        else:
            torch.mul(gradient, 1.0 / divisor, out=into)

    def copy(self, into: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Copy tensors one by one."""
        for target, source in zip(into, arrays, strict=True):
            target.copy_(source.view_as(target))

    def clear(self, array: Any) -> None:
        """Write zeros."""
        array.zero_()


def _is_dense(tensor: Any) -> bool:
    """Whether its elements fill one range of memory, in some order of its dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def refuse_sparse(name: str, gradient: Any) -> None:
    """The UsageError about a sparse gradient."""
    raise UsageError(
        f"DDP: the gradient of {name} is sparse ({gradient.layout}); only dense ones are reduced",
        hint="make the layer with sparse=False, or leave its parameters out of DDP",
    )
