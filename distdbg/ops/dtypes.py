"""The element types that the runtime moves and reduces, and how NumPy and torch call them.

The numbers are those of native/core/dtype.hpp (a test compares them); they are part of the wire and
of the record and never change. torch is never imported: its dtypes are known by name.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np


class Dtype(IntEnum):
    """One element type; `label` is its spelling in messages and records."""

    bool_ = 0
    uint8 = 1
    int8 = 2
    uint16 = 3
    int16 = 4
    uint32 = 5
    int32 = 6
    uint64 = 7
    int64 = 8
    float16 = 9
    bfloat16 = 10
    float8_e4m3fn = 11
    float8_e5m2 = 12
    float8_e4m3fnuz = 13
    float8_e5m2fnuz = 14
    float32 = 15
    float64 = 16
    complex64 = 17
    complex128 = 18

    @property
    def label(self) -> str:
        """'float32'; 'bool' for bool_."""
        return self.name.rstrip("_")

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEMSIZES[self]

    @property
    def is_complex(self) -> bool:
        """complex64 and complex128."""
        return self >= Dtype.complex64

    @property
    def is_floating(self) -> bool:
        """Real floating point, of any width."""
        return Dtype.float16 <= self <= Dtype.float64

    @property
    def part(self) -> Dtype:
        """Of complex numbers the dtype of their two parts; else itself."""
        return _PARTS.get(self, self)

    @property
    def is_integral(self) -> bool:
        """Integers with and without sign; not bool."""
        return Dtype.uint8 <= self <= Dtype.int64

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; for bfloat16 and float8 it is ml_dtypes'."""
        return _NUMPY[self]


_PARTS = {Dtype.complex64: Dtype.float32, Dtype.complex128: Dtype.float64}

_EXTENSIONS = {
    Dtype.bfloat16: ml_dtypes.bfloat16,
    Dtype.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    Dtype.float8_e5m2: ml_dtypes.float8_e5m2,
    Dtype.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    Dtype.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}

_NUMPY: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(_EXTENSIONS.get(dtype, dtype.label)) for dtype in Dtype
)
_ITEMSIZES: tuple[int, ...] = tuple(dtype.itemsize for dtype in _NUMPY)

#: Native byte order only: a big-endian dtype is not equal to any key. A plain dict, because looking
#: it up is on the path of every op.
FROM_NUMPY: dict[np.dtype[Any], Dtype] = {_NUMPY[dtype]: dtype for dtype in Dtype}

#: What the buffer protocol does not carry, with the unsigned integer of the same size that it does.
CARRIERS: dict[Dtype, np.dtype[Any]] = {
    dtype: np.dtype(f"uint{8 * dtype.itemsize}") for dtype in _EXTENSIONS
}

_FROM_NAME = {dtype.label: dtype for dtype in Dtype}


def from_numpy(dtype: np.dtype[Any]) -> Dtype | None:
    """The Dtype of a NumPy or ml_dtypes dtype in native byte order; None if there is none."""
    return FROM_NUMPY.get(dtype)


# Without it, printing the torch dtype would be half of the cost of taking a tensor.
@lru_cache(maxsize=64)
def from_torch(dtype: object) -> Dtype | None:
    """The Dtype of a torch.dtype, read from its name ('torch.float32'); None if there is none."""
    return _FROM_NAME.get(str(dtype).removeprefix("torch."))
