"""Finds NaN and Inf in the inputs of an op: by native code, or by the array's library.

Arrays on a device are asked by their own library, whose answer waits for the device; that is what a
breakpoint costs that asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from distdbg.errors import UsageError
from distdbg.native import find_nonfinite
from distdbg.ops.call import Call, Kind
from distdbg.runtime.arrays.buffers import as_input


def describe_nonfinite(call: Call, rank: int) -> str:
    """'input has 3 NaN or Inf of 8, the first is NaN at element 5'; '' when all is finite.

    `rank` is this one's in the group: others than the root of a broadcast send nothing.
    """
    if call.kind is Kind.BROADCAST and call.root != rank:
        return ""
    return next(filter(None, map(_describe, call.inputs, _names(call.inputs))), "")


def _names(arrays: Sequence[Any]) -> list[str]:
    return ["the input"] if len(arrays) == 1 else [f"input {n}" for n in range(len(arrays))]


def _describe(array: Any, name: str) -> str:
    try:
        view = as_input(array)
    except UsageError:
        return f"{name} has NaN or Inf" if _has_on_device(array) else ""
    found = find_nonfinite(view)
    if found is None:
        return ""
    count, first, is_nan = found
    what = "NaN" if is_nan else "Inf"
    return f"{name} has {count} NaN or Inf of {view.count}, the first is {what} at element {first}"


def _has_on_device(array: Any) -> bool:
    """Whether an array that is not in host memory has some; False when its library cannot tell."""
    with suppress(Exception):  # of any library, and only looked at
        isfinite = getattr(array, "isfinite", None)
        if isfinite is not None:
            return not bool(isfinite().all())
        library: Any = sys.modules[type(array).__module__.partition(".")[0]]
        return not bool(library.isfinite(array).all())
    return False
