"""The contents of arrays: small integers chosen so that every result is exact in its dtype.

Sums, products and means of a few ranks then do not depend on the order of the operations, and
results compare bit for bit. Integers also overflow, where all libraries wrap around.
"""

from __future__ import annotations

import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

GARBAGE = 0x5A
"""The byte written over an array that an op is done with, and into outputs before it."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of a name; ml_dtypes has those that NumPy lacks."""
    return np.dtype(getattr(ml_dtypes, name, name))


def make_values(dtype: str, shape: tuple[int, ...], key: int, op: str = "SUM", n: int = 1) -> Array:
    """Numbers that follow from `key`, exact for `op` over `n` ranks."""
    count = int(np.prod(shape, dtype=np.int64))
    index = np.arange(count, dtype=np.int64)
    mixed = (index * 7919 + (index >> 3) * 31 + key * 104_729) % 10_007
    low, high = _bounds(dtype, op)
    numbers = low + mixed % (high - low + 1)
    if op == "AVG":
        numbers = numbers * n
    if dtype.startswith("complex"):
        numbers = numbers + 1j * np.roll(numbers, 1)
    return numbers.astype(numpy_dtype(dtype)).reshape(shape)


def _bounds(dtype: str, op: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    signed = not dtype.startswith("uint")
    if dtype.startswith("float8"):
        return -4, 4
    if op == "PRODUCT":
        return (-3 if signed else 0), 3
    if "int" in dtype:
        return (-100 if signed else 0), 100
    return -8, 8


def make_output(dtype: str, shape: tuple[int, ...]) -> Array:
    """An array to be overwritten, full of garbage that no result equals by chance."""
    array = np.empty(shape, dtype=numpy_dtype(dtype))
    scribble(array)
    return array


def scribble(array: Array) -> None:
    """Overwrite, as a program does that reuses an array once it may."""
    array[...] = np.frombuffer(
        bytes([GARBAGE if array.dtype != bool else 1]) * array.dtype.itemsize, array.dtype
    )[0]


def describe(array: Array) -> dict[str, Any]:
    """An array as JSON: all of it in a digest, the beginning for a reader.

    A bool of another byte than 0 or 1 is True like any other, but is told: see quirks.py.
    """
    facts: dict[str, Any] = {}
    if array.dtype == bool:
        raw = np.ascontiguousarray(array).view(np.uint8)
        if (raw > 1).any():
            facts["odd_bools"] = True
        array = raw != 0
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "sha1": hashlib.sha1(array.tobytes()).hexdigest(),
        "head": [str(value) for value in array.ravel()[:12]],
        **facts,
    }
