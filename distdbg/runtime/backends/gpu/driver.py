"""CuPy and CUDA of this process, as far as ops without NCCL need them. Loaded by the first of them.

Tests put a stand-in in the place of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

#: cudaErrorNotReady
_NOT_READY: Final = 600
#: With fewer roundings than one for each op, ranks and hosts would differ.
_OPTIONS: Final = ("-std=c++17", "--fmad=false")

Bytes = npt.NDArray[np.uint8]


class Allocations(Protocol):
    """What CuPy does not bind; see cuda_functions.py."""

    def allocation(self, address: int) -> tuple[int, int]:
        """Base and bytes of the allocation that an address is in."""
        ...

    def buffer_id(self, address: int) -> int | None:
        """Its number, which no other allocation of this process has; None where it was freed."""
        ...


class Driver:
    """One process's."""

    def __init__(self, cupy: Any, allocations: Allocations) -> None:
        self.cupy: Final = cupy
        self.allocations: Final = allocations
        self._runtime = cupy.cuda.runtime

    def on_device(self, device: int) -> AbstractContextManager[Any]:
        """In this block the thread uses the device."""
        block: AbstractContextManager[Any] = self.cupy.cuda.Device(device)
        return block

    def stream(self) -> Any:
        """A new one, which waits for no other."""
        return self.cupy.cuda.Stream(non_blocking=True)

    def event(self, stream: Any) -> Any:
        """A new one, after what the stream has by now."""
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def shared_event(self) -> Any:
        """One that other processes can wait for."""
        return self.cupy.cuda.Event(disable_timing=True, interprocess=True)

    def timed_event(self, stream: Any) -> Any:
        """The same, and the device notes when it came to it."""
        event = self.cupy.cuda.Event()
        event.record(stream)
        return event

    def ran_ns(self, begin: Any, end: Any) -> int:
        """Between two timed events that have passed, by the device's clock; -1 where CUDA does not say."""
        try:
            return int(self.cupy.cuda.get_elapsed_time(begin, end) * 1e6)
        except RuntimeError:  # only the record wants it
            return -1

    def has_passed(self, event: Any) -> bool:
        """Whether the device has come to it; CUDA's error is raised."""
        return self.has_passed_at(event.ptr)

    def has_passed_at(self, event: int) -> bool:
        """The same of the event at this address, also of another process."""
        status = int(self._runtime.eventQuery(event))
        if status in (0, _NOT_READY):
            return status == 0
        raise self._runtime.CUDARuntimeError(status)

    def wait_for(self, stream: Any, event: int) -> None:
        """Queue: the stream goes on after the event at this address."""
        self._runtime.streamWaitEvent(stream.ptr, event)

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        """Queue a copy, from and to wherever the addresses are."""
        self._runtime.memcpyAsync(target, source, nbytes, self._runtime.memcpyDefault, stream.ptr)

    def pinned(self, nbytes: int) -> Bytes:
        """Memory of the host that the device reads and writes by itself."""
        memory = self.cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def kernel(self, text: str, name: str) -> Any:
        """Compile; called as (grid, block, arguments)."""
        return self.cupy.RawModule(code=text, options=_OPTIONS).get_function(name)

    # --------------------------------------------------------------------- between processes

    def memory_handle(self, base: int) -> bytes:
        """What other processes open an allocation with."""
        return bytes(self._runtime.ipcGetMemHandle(base))

    def open_memory(self, handle: bytes) -> int:
        """Where the allocation is in this process."""
        return int(self._runtime.ipcOpenMemHandle(handle))

    def close_memory(self, address: int) -> None:
        """The opposite."""
        self._runtime.ipcCloseMemHandle(address)

    def event_handle(self, event: Any) -> bytes:
        """What other processes open an event with."""
        return bytes(self._runtime.ipcGetEventHandle(event.ptr))

    def open_event(self, handle: bytes) -> int:
        """The event of another process."""
        return int(self._runtime.ipcOpenEventHandle(handle))

    def close_event(self, event: int) -> None:
        """The opposite."""
        self._runtime.eventDestroy(event)


_lock = threading.Lock()  # protects _driver
_driver: Driver | None = None


def load() -> Driver:
    """Import CuPy, unless that was done; without it there is CUDA's driver, for CUDA tensors."""
    global _driver
    with _lock:
        if _driver is None:
            from distdbg.runtime.backends.gpu import cuda_without_cupy
            from distdbg.runtime.backends.gpu.cuda_functions import CudaFunctions

            cupy: Any
            if has_cupy():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # CuPy warns of libraries that it does not find
                    cupy = importlib.import_module("cupy")
            else:
                cupy = cuda_without_cupy.load()
            _driver = Driver(cupy, CudaFunctions())
        return _driver


def is_likely() -> bool:
    """Whether a GPU can be expected here, and CuPy or CUDA tensors; none is started for that."""
    if _driver is not None:
        return True
    has_gpu = Path("/dev/dxg").exists() or any(Path("/dev").glob("nvidia[0-9]*"))
    return has_gpu and (has_cupy() or _has_torch())


def has_cupy() -> bool:
    """Whether there are kernels, and so IPC."""
    if _driver is not None:
        return hasattr(_driver.cupy, "RawModule")
    return importlib.util.find_spec("cupy") is not None


def _has_torch() -> bool:
    """A torch for CUDA, which the program has imported."""
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "cuda", None) is not None
