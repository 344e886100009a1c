"""The capture of a CUDA graph: an op of ours has no place in one, which is told before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from distdbg.errors import UsageError
from distdbg.runtime.arrays.device_arrays import is_on_device, library_of, on_device_of
from distdbg.runtime.arrays.torch_arrays import is_tensor


def refuse_capture(name: str, stream: Any) -> None:
    """Raise UsageError when a stream of CuPy's captures what it is given."""
    is_capturing = getattr(stream, "is_capturing", None)
    if is_capturing is not None and is_capturing():
        _refuse(name)


def refuse_captured(name: str, arrays: Iterable[Any]) -> None:
    """The same of the stream that this thread has for the first array on a GPU."""
    first = next((array for array in arrays if is_on_device(array)), None)
    if first is None:
        return
    if is_tensor(first):
        if sys.modules["torch"].cuda.is_current_stream_capturing():
            _refuse(name)
        return
    current = getattr(getattr(library_of(first), "cuda", None), "get_current_stream", None)
    if current is not None:
        with on_device_of(first):
            refuse_capture(name, current())


def _refuse(name: str) -> None:
    raise UsageError(
        f"{name}: the stream captures a CUDA graph, in which an op has no place: a graph that is launched "
        "again compares nothing, and has no limit and no record",
        hint="end the capture before the op, and begin another one after it",
    )
