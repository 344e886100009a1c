"""CudaWithoutCupy: what CUDA tensors in chunks need of CUDA where CuPy is not, under CuPy's names.

CUDA's driver (`libcuda.so.1`) through ctypes: torch binds no copy between two addresses, and its runtime
library has another name in each version. Contexts are those that torch has. Kernels, and so IPC between
processes, need CuPy.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

_NOT_READY: Final = 600
_STREAM_NON_BLOCKING: Final = 1
_EVENT_DISABLE_TIMING: Final = 2
#: Of pinned memory: for all devices of the process.
_PORTABLE: Final = 1


class CudaDriverError(RuntimeError):
    """As CuPy's, which is made of a number."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


class CudaWithoutCupy:
    """Has `cuda`, with as much as Driver asks of CuPy's for chunks. `library`: CUDA's driver."""

    def __init__(self, library: Any) -> None:
        self.library: Final = library
        self._lock = threading.Lock()  # protects _contexts
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.cuda = SimpleNamespace(
            runtime=self,
            Device=self._on_device,
            Stream=lambda non_blocking: _Stream(self, non_blocking),
            ExternalStream=lambda pointer, device: SimpleNamespace(ptr=pointer),
            Event=lambda disable_timing=False: _Event(self, disable_timing),
            alloc_pinned_memory=self._pin,
        )

    CUDARuntimeError = CudaDriverError
    memcpyDefault = 0  # the driver's copy finds out by itself

    def call(self, name: str, *arguments: Any) -> None:
        """One function of the driver; raises its error."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CudaDriverError(status)

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        """Queue a copy, from and to wherever the addresses are."""
        self.call(
            "cuMemcpyAsync", ctypes.c_uint64(target), ctypes.c_uint64(source),
            ctypes.c_size_t(nbytes), ctypes.c_void_p(stream),
        )  # fmt: skip

    def eventQuery(self, event: int) -> int:
        """CUDA's status of it: 0 where the device has come to it."""
        return int(self.library.cuEventQuery(ctypes.c_void_p(event)))

    def streamWaitEvent(self, stream: int, event: int) -> None:
        """Queue: the stream goes on after the event."""
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), 0)

    @contextmanager
    def _on_device(self, device: int) -> Iterator[None]:
        self.call("cuCtxPushCurrent_v2", self._context(device))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _context(self, device: int) -> ctypes.c_void_p:
        """The one of the device that its runtime, and so torch, uses."""
        with self._lock:
            if device not in self._contexts:
                number, context = ctypes.c_int(), ctypes.c_void_p()
                self.call("cuDeviceGet", ctypes.byref(number), device)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
                self._contexts[device] = context
            return self._contexts[device]

    def _pin(self, nbytes: int) -> Any:
        owner = _PinnedMemory(self, nbytes)
        memory = (ctypes.c_uint8 * nbytes).from_address(owner.address)
        memory.owner = owner  # type: ignore[attr-defined]  # freed with the last array that is in it
        return memory


class _Handle:
    """Something of CUDA's that lives as long as this; `ptr` is what CUDA calls it."""

    _end: str

    def __init__(self, cuda: CudaWithoutCupy, make: str, flags: int) -> None:
        self._cuda = cuda
        pointer = ctypes.c_void_p()
        cuda.call(make, ctypes.byref(pointer), flags)
        self.ptr: Final = pointer.value or 0

    def __del__(self) -> None:
        if hasattr(self, "ptr"):  # CUDA may have ended before, and says so: nothing is left to do
            getattr(self._cuda.library, self._end)(ctypes.c_void_p(self.ptr))


class _Stream(_Handle):
    _end = "cuStreamDestroy_v2"

    def __init__(self, cuda: CudaWithoutCupy, non_blocking: bool) -> None:
        super().__init__(cuda, "cuStreamCreate", _STREAM_NON_BLOCKING if non_blocking else 0)


class _Event(_Handle):
    _end = "cuEventDestroy_v2"

    def __init__(self, cuda: CudaWithoutCupy, disable_timing: bool) -> None:
        super().__init__(cuda, "cuEventCreate", _EVENT_DISABLE_TIMING if disable_timing else 0)

    def record(self, stream: Any) -> None:
        self._cuda.call("cuEventRecord", ctypes.c_void_p(self.ptr), ctypes.c_void_p(stream.ptr))


class _PinnedMemory:
    def __init__(self, cuda: CudaWithoutCupy, nbytes: int) -> None:
        pointer = ctypes.c_void_p()
        cuda.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(nbytes), _PORTABLE)
        self._cuda = cuda
        self.address: Final = pointer.value or 0

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._cuda.library.cuMemFreeHost(ctypes.c_void_p(self.address))


def load() -> CudaWithoutCupy:
    """Of this process; OSError where there is no driver."""
    return CudaWithoutCupy(ctypes.CDLL("libcuda.so.1"))
