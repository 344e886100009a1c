"""What a Reducer needs of a library's arrays, and how NumPy (or CuPy) does it.

A gradient is put into its bucket multiplied by 1/n, as torch does it, so that no sum grows beyond its dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

#: An array of the library; it is the user's.
Array = Any


class Arrays(Protocol):
    """The arrays of one library."""

    def make(self, like: Array, count: int) -> Array:
        """Return a flat array of zeros, of the dtype and on the device of another one."""
        ...

    def part(self, flat: Array, begin: int, like: Array) -> Array:
        """Return the view of a flat array that has another one's shape and memory order."""
        ...

    def put(self, into: Array, gradient: Array, divisor: float) -> None:
        """Write a gradient divided by `divisor`; into itself, if it is that view already."""
        ...

    def copy(self, into: Sequence[Array], arrays: Sequence[Array]) -> None:
        """Copy arrays one by one; of other shapes with as many elements, too."""
        ...

    def clear(self, array: Array) -> None:
        """Write zeros."""
        ...


class NumpyArrays:
    """NumPy's arrays, and those of a library that is used in the same way; implements Arrays."""

    def make(self, like: Array, count: int) -> Array:
        """Return a flat array of zeros."""
        return _library(like).zeros(count, like.dtype)

    def part(self, flat: Array, begin: int, like: Array) -> Array:
        """Return the view of that shape."""
        shape = tuple(like.shape)
        return flat[begin : begin + prod(shape)].reshape(shape)

    def put(self, into: Array, gradient: Array, divisor: float) -> None:
        """Write a gradient divided by `divisor`."""
        if divisor == 1:
            if into is not gradient:
                into[...] = gradient
            return
        # A factor of the array's own dtype: float16 stays that.
        factor = into.dtype.type(1.0 / divisor)
        _library(into).multiply(gradient, factor, out=into, casting="same_kind")

    def copy(self, into: Sequence[Array], arrays: Sequence[Array]) -> None:
        """Copy arrays one by one."""
        for target, source in zip(into, arrays, strict=True):
            target[...] = source.reshape(target.shape)

    def clear(self, array: Array) -> None:
        """Write zeros."""
        array[...] = 0


def _library(array: Array) -> Any:
    """NumPy, or whatever made the array and has NumPy's functions."""
    name = type(array).__module__.partition(".")[0]
    return sys.modules["cupy"] if name == "cupy" else np
