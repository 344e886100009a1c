"""The size of an op and its bandwidths, by the formulas of nccl-tests. Pure.

    algorithm bandwidth   S / t
    bus bandwidth         the same times a factor that makes it one number for any count of ranks n:
                          what each link of the hardware has carried

| kind | S: bytes | factor |
|---|---|---|
| all_reduce | of the array | 2 (n - 1) / n |
| all_gather, reduce_scatter, all_to_all, gather, scatter | of the side with all parts | (n - 1) / n |
| broadcast, reduce, recv | of the array | 1 |

A barrier moves no data and has no bandwidth. A message counts once, on its receiver: a send learns of the
receiver when the data has been copied, so its time after that is no transfer.
"""

from __future__ import annotations

from math import prod
from typing import Final

from distdbg.record.forms import Form, Listing, Shape

_PARTS: Final = frozenset(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"))
_WHOLE: Final = frozenset(("broadcast", "reduce", "recv"))

_ITEM_NBYTES: Final = {
    "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


def size_of(form: Form, kind: str, group_size: int) -> int:
    """S: how much the op is about, the same on all its ranks."""
    larger = max(_count(form.inputs), _count(form.outputs))
    nbytes = larger * _ITEM_NBYTES.get(form.dtype, 0) or form.nbytes
    # Only the root has the side with all parts.
    if (kind == "gather" and not form.outputs.count) or (
        kind == "scatter" and not form.inputs.count
    ):
        return nbytes * max(group_size, 1)
    return nbytes


def bus_factor(kind: str, group_size: int) -> float | None:
    """Bus over algorithm bandwidth; None for what has none."""
    n = group_size
    if kind in _WHOLE:
        return 1.0
    if n < 2:
        return 1.0 if kind == "all_reduce" or kind in _PARTS else None
    if kind == "all_reduce":
        return 2 * (n - 1) / n
    return (n - 1) / n if kind in _PARTS else None


def _count(shapes: Listing[Shape]) -> int:
    """How many elements; 0 when the list was cut."""
    return 0 if shapes.hash else sum(prod(shape) for shape in shapes.items)
