"""The values of one rank to all ranks: tensors of one dtype travel together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from distdbg.runtime.api.collectives import broadcast
from distdbg.runtime.groups.group import ProcessGroup

#: More is not copied into one tensor; torch's number.
_MAX_NBYTES = 250 << 20


def broadcast_states(group: ProcessGroup, tensors: Sequence[Any], root: int = 0) -> None:
    """Broadcast the tensors of group rank `root`, in place."""
    for part in _parts(tensors):
        _broadcast(group, part, root)


def _parts(tensors: Sequence[Any]) -> list[list[Any]]:
    """Tensors of one dtype in parts that are small enough, in the order of their first one."""
    open_parts: dict[Any, list[Any]] = {}
    sizes: dict[Any, int] = {}
    parts: list[list[Any]] = []
    for tensor in tensors:
        key, nbytes = tensor.dtype, tensor.numel() * tensor.element_size()
        if key in open_parts and sizes[key] + nbytes > _MAX_NBYTES:
            del open_parts[key]
        if key not in open_parts:
            open_parts[key], sizes[key] = [], 0
            parts.append(open_parts[key])
        open_parts[key].append(tensor)
        sizes[key] += nbytes
    return parts


def _broadcast(group: ProcessGroup, tensors: Sequence[Any], root: int) -> None:
    if len(tensors) == 1 and tensors[0].is_contiguous():
        broadcast(tensors[0], group=group, group_src=root)
        return
    flat: Any = torch.cat([tensor.reshape(-1) for tensor in tensors])
    broadcast(flat, group=group, group_src=root)
    if group.rank() == root:
        return
    pieces = flat.split([tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.copy_(piece.view_as(tensor))
