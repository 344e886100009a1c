"""The capture of a CUDA graph: no op of ours has a place in one, and none of our threads is to end one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from typing import Any, Final

from distdbg.errors import UsageError
from distdbg.runtime.arrays.device_arrays import is_on_device, library_of, on_device_of
from distdbg.runtime.arrays.torch_arrays import is_tensor

#: CU_STREAM_CAPTURE_MODE_RELAXED
_RELAXED: Final = 2


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


def refuse_wait(name: str, cupy: Any, *, is_torchs: bool) -> None:
    """Raise UsageError when this thread's stream captures: asking CUDA for an earlier op would end that."""
    if is_torchs:
        is_capturing = bool(sys.modules["torch"].cuda.is_current_stream_capturing())
    else:
        is_capturing = bool(getattr(cupy.cuda.get_current_stream(), "is_capturing", bool)())
    if is_capturing:
        raise UsageError(
            f"{name}: the stream captures a CUDA graph, where no op that began before can be waited for",
            hint="wait for the op before the capture begins, or after it has ended",
        )


def let_others_capture() -> None:
    """What this thread asks of CUDA is not to end the capture of another one's stream with an error."""
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):  # no driver, or one before CUDA 10.1
        return
    exchange(ctypes.byref(ctypes.c_int(_RELAXED)))


def _refuse(name: str) -> None:
    raise UsageError(
        f"{name}: the stream captures a CUDA graph, in which an op has no place: a graph that is launched "
        "again compares nothing, and has no limit and no record",
        hint="end the capture before the op, and begin another one after it",
    )
