"""What each kind of collective computes, in plain NumPy and obviously right.

Pure: from what all ranks bring to what one rank gets. The reference for other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distdbg.ops.call import Call, Kind
from distdbg.ops.reduce_op import ReduceOp

Block = npt.NDArray[Any]


@dataclass(frozen=True)
class Brought:
    """What one rank brings to one collective."""

    what: str
    blocks: list[Block]
    #: One block per rank, or one flat array (on one rank, both are one block).
    is_list: bool
    input_splits: list[int] | None


def compute(call: Call, rank: int, size: int, everyone: Sequence[Brought]) -> list[Block]:
    """Return the output blocks of this rank; [] when it has none."""
    inputs = [brought.blocks for brought in everyone]
    kind = call.kind
    if kind in (Kind.BROADCAST, Kind.SCATTER):
        blocks = inputs[call.root]
        return [blocks[rank if kind == Kind.SCATTER else 0]]
    if kind in (Kind.ALL_REDUCE, Kind.REDUCE):
        if not call.outputs or call.op is None:
            return []
        return [fold(call.op, [blocks[0].reshape(-1) for blocks in inputs])]
    if kind in (Kind.ALL_GATHER, Kind.GATHER):
        if not call.outputs:
            return []
        return [blocks[0] for blocks in inputs]
    if kind == Kind.REDUCE_SCATTER and call.op is not None:
        parts = [_part(brought, rank, size) for brought in everyone]
        return [fold(call.op, parts)]
    if kind == Kind.ALL_TO_ALL:
        return [_part(brought, rank, size) for brought in everyone]
    return []


def _part(brought: Brought, rank: int, size: int) -> Block:
    """Return the block that is meant for `rank`."""
    if brought.is_list:
        return brought.blocks[rank].reshape(-1)
    array = brought.blocks[0]
    if brought.input_splits is None:
        parts: list[Block] = np.split(array.reshape(-1), size)
        return parts[rank]
    begin = sum(brought.input_splits[:rank])
    return array[begin : begin + brought.input_splits[rank]].reshape(-1)


_FOLDS: dict[str, Callable[..., Any]] = {
    "SUM": np.add,
    "AVG": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def fold(op: ReduceOp, parts: Sequence[Block]) -> Block:
    """Reduce in ascending order of the ranks."""
    combine = _FOLDS[op.op.name]
    total: Block = parts[0].copy()
    for part in parts[1:]:
        total = combine(total, part).astype(total.dtype)
    if op.op.name == "AVG":
        if np.issubdtype(total.dtype, np.integer):
            whole: Block = np.sign(total) * (np.abs(total) // len(parts))
            return whole.astype(total.dtype)
        total = (total / len(parts)).astype(total.dtype)
    return total
