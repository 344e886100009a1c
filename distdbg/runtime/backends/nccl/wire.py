"""How elements travel: as which datatype of NCCL, and as how many of it.

NCCL has no bool, no 16-bit integers and no complex numbers. What is only moved goes as bytes; a complex
number that is summed goes as a pair of real ones; a bool is 0 or 1 in a byte. The numbers are those of
nccl.h.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype

_UINT8: Final = 1
_CODES: Final = {
    Dtype.int8: 0,
    Dtype.uint8: _UINT8,
    Dtype.int32: 2,
    Dtype.uint32: 3,
    Dtype.int64: 4,
    Dtype.uint64: 5,
    Dtype.float16: 6,
    Dtype.float32: 7,
    Dtype.float64: 8,
    Dtype.bfloat16: 9,
    Dtype.float8_e4m3fn: 10,
    Dtype.float8_e5m2: 11,
}
#: Of NCCL 2.24 and newer.
FLOAT8: Final = (Dtype.float8_e4m3fn, Dtype.float8_e5m2)
_FLOAT8_SINCE: Final = 22400
_FLOAT8_CAPABILITY: Final = 90
_PAIRS: Final = {Dtype.complex64: Dtype.float32, Dtype.complex128: Dtype.float64}


class Wire(NamedTuple):
    """What one element is to NCCL."""

    code: int
    #: How many of them an element is.
    width: int
    itemsize: int


def to_move(dtype: Dtype, version: int) -> Wire:
    """For an op that leaves elements as they are."""
    if dtype in _CODES and not _is_too_new(dtype, version):
        return Wire(_CODES[dtype], 1, dtype.itemsize)
    return Wire(_UINT8, dtype.itemsize, 1)


def to_reduce(dtype: Dtype, version: int) -> Wire:
    """For a reduction; UsageError where NCCL cannot compute with the dtype."""
    if dtype is Dtype.bool_:
        return Wire(_UINT8, 1, 1)
    if dtype in _PAIRS:
        part = _PAIRS[dtype]
        return Wire(_CODES[part], 2, part.itemsize)
    if dtype not in _CODES or _is_too_new(dtype, version):
        since = ""
        if dtype in _CODES:
            since = f"; NCCL 2.24 has it, this is {version_text(version)}"
        raise UsageError(
            f"NCCL cannot reduce {dtype.label}{since}",
            details=["ops that only move elements take every dtype"],
            hint="convert the array, or reduce it on a group with backend 'gloo'",
        )
    return Wire(_CODES[dtype], 1, dtype.itemsize)


def check_device(dtype: Dtype, capability: int, device: int) -> None:
    """Raise where the GPU, of compute capability 9.0 (90) say, is too old for NCCL to reduce float8 on it."""
    if capability < _FLOAT8_CAPABILITY:
        raise UsageError(
            f"NCCL cannot reduce {dtype.label} on cuda:{device}, of compute capability "
            f"{capability // 10}.{capability % 10}; it needs 9.0 or newer (H100)",
            details=["ops that only move elements take every dtype"],
            hint="convert the array to bfloat16, or reduce it on a group with backend 'gloo'",
        )


def version_text(version: int) -> str:
    """'2.27.3' of 22703."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _is_too_new(dtype: Dtype, version: int) -> bool:
    return dtype in FLOAT8 and version < _FLOAT8_SINCE
