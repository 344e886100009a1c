"""The stream of a group on its device, and how it is ordered with those of the program.

Nothing here blocks the host: streams wait for events.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from distdbg.runtime.arrays.device_arrays import DeviceBuffer, device_buffer
from distdbg.runtime.backends.nccl.library import NcclLibrary

#: Above the default; CUDA takes the nearest one that the device has.
_HIGH: Final = -1
#: cudaErrorNotReady
_NOT_READY: Final = 600


class Streams:
    """One group's."""

    def __init__(self, library: NcclLibrary, device: int, is_high_priority: bool) -> None:
        self._cupy = library.cupy
        self.device: Final = device
        with self.on_device():
            self.stream: Final = self._cupy.cuda.Stream(
                non_blocking=True, priority=_HIGH if is_high_priority else 0
            )

    def on_device(self) -> AbstractContextManager[Any]:
        """In this block the thread uses the group's device."""
        block: AbstractContextManager[Any] = self._cupy.cuda.Device(self.device)
        return block

    def event(self, *, is_timed: bool = False) -> Any:
        """After what is queued in the group's stream by now; `is_timed`: the device notes when."""
        return record(self._cupy, self.stream, is_timed=is_timed)

    def wait_for(self, event: Any) -> None:
        """Queue: the group's stream goes on after the event."""
        self.stream.wait_event(event)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy inside of the device."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDeviceToDevice, self.stream.ptr)

    def memory(self, nbytes: int) -> DeviceBuffer:
        """New memory for the group's stream; what was there before, this stream has used."""
        with self.stream:
            return device_buffer(self._cupy.empty(nbytes, "uint8"))

    def carry_out(self, function: Callable[[], None]) -> None:
        """Call a function whose CuPy kernels are to be queued in the group's stream."""
        with self.stream:
            function()


def record(cupy: Any, stream: Any, *, is_timed: bool = False) -> Any:
    """An event after what is queued in a stream by now."""
    event = cupy.cuda.Event(disable_timing=not is_timed)
    event.record(stream)
    return event


def has_passed(cupy: Any, event: Any) -> bool:
    """Whether the device has passed an event; raises CUDA's error, where CuPy's `done` is False for good."""
    status = int(cupy.cuda.runtime.eventQuery(event.ptr))
    if status in (0, _NOT_READY):
        return status == 0
    raise cupy.cuda.runtime.CUDARuntimeError(status)


def current_stream(cupy: Any, device: int, is_torchs: bool) -> Any:
    """The stream in which this thread's own work is, as a stream of CuPy's."""
    if not is_torchs:
        return cupy.cuda.get_current_stream()
    theirs = sys.modules["torch"].cuda.current_stream(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy 14 prefers a protocol that not every torch has
        return cupy.cuda.ExternalStream(int(theirs.cuda_stream), device)
