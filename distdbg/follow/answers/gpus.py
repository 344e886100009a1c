"""GPU use of processes of this host, from NVIDIA's management library; empty without it.

The library is looked at in a thread of its own, every two seconds and only while somebody asks, so a slow
driver blocks nobody. The first error switches it off for good, with one line in the log.
A process is known by its number here; where the driver counts processes in another namespace, as in some
containers, none is found.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

_LIBRARY: Final = "libnvidia-ml.so.1"
_EVERY_S: Final = 2.0
#: The thread ends when nobody has asked for so long, and begins again with the next who does.
_IDLE_S: Final = 30.0
_MAX_PROCESSES: Final = 1024
_MAX_GPUS: Final = 64
#: The library's answers that are no errors: not for this GPU, not for this user, nothing to tell.
_NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _TOO_SMALL = 3, 4, 6, 7
#: What it says of memory that it does not know.
_NOT_KNOWN: Final = 2**64 - 1

_log = logging.getLogger("distdbg.agent")


class GpuUse(NamedTuple):
    """What one process uses, on all GPUs together."""

    share: float | None
    """As a share of the time of one GPU, so more than 1 is possible; None: not known."""
    nbytes: int


class Binding(Protocol):
    """What is asked of the library."""

    def uses(self) -> Mapping[int, GpuUse]:
        """By process; OSError when the library refuses."""
        ...

    def close(self) -> None: ...


class Gpus:
    """The use of GPUs by process, as old as two seconds at the most."""

    def __init__(
        self, bind: Callable[[], Binding] | None = None, *, every_s: float = _EVERY_S
    ) -> None:
        self._bind = bind or Nvml
        self._every_s = every_s
        self._uses: Mapping[int, GpuUse] = {}
        self._asked_s = 0.0
        self._thread: threading.Thread | None = None
        self._is_off = False
        self._leave = threading.Event()

    @property
    def has_any(self) -> bool:
        """Whether there may be something to tell."""
        return not self._is_off

    def use_of(self, pid: int) -> GpuUse | None:
        """What a process uses; None: nothing, or nobody knows. Returns at once."""
        if self._is_off:
            return None
        self._asked_s = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="distdbg-gpus", daemon=True)
            self._thread.start()
        return self._uses.get(pid)

    def close(self) -> None:
        """Let the thread end soon."""
        self._is_off = True
        self._leave.set()

    def _watch(self) -> None:
        try:
            binding = self._bind()
        except (OSError, AttributeError) as error:  # no library, or one without these functions
            _log.debug("GPU use is not available: %s", error)  # mostly there is none
            self._is_off = True
            return
        try:
            while time.monotonic() - self._asked_s < _IDLE_S:
                self._uses = binding.uses()
                if self._leave.wait(self._every_s):
                    return
        except (OSError, ValueError, AttributeError) as error:
            _log.warning("GPU use is no longer available: %s", error)
            self._is_off = True
        finally:
            self._uses = {}
            binding.close()


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_nbytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Utilization(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("time_us", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    )


class Nvml:
    """The library, by ctypes."""

    def __init__(self, library: str = _LIBRARY) -> None:
        """OSError without it, or without a GPU that it knows."""
        self._nvml = ctypes.CDLL(library)
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._gpus = []
        for index in range(min(count.value, _MAX_GPUS)):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            self._gpus.append(handle)
        self._since_us = [0] * len(self._gpus)
        if not self._gpus:
            raise OSError("no GPU found")

    def uses(self) -> dict[int, GpuUse]:
        """By process, over all GPUs."""
        nbytes: dict[int, int] = {}
        shares: dict[int, float] = {}
        for index, gpu in enumerate(self._gpus):
            for process in self._processes(gpu):
                used = 0 if process.used_nbytes == _NOT_KNOWN else process.used_nbytes
                nbytes[process.pid] = nbytes.get(process.pid, 0) + used
            for pid, share in self._shares(index, gpu).items():
                shares[pid] = shares.get(pid, 0.0) + share
        return {pid: GpuUse(shares.get(pid), nbytes.get(pid, 0)) for pid in nbytes | shares}

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _processes(self, gpu: ctypes.c_void_p) -> list[_Process]:
        count = ctypes.c_uint(_MAX_PROCESSES)
        found = (_Process * _MAX_PROCESSES)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        is_reported = self._call(name, gpu, ctypes.byref(count), found)
        return list(found[: count.value]) if is_reported else []

    def _shares(self, index: int, gpu: ctypes.c_void_p) -> dict[int, float]:
        """The newest that each process has; what has no sample since the last look did nothing."""
        count = ctypes.c_uint(_MAX_PROCESSES)
        found = (_Utilization * _MAX_PROCESSES)()
        since = ctypes.c_ulonglong(self._since_us[index])
        name = "nvmlDeviceGetProcessUtilization"
        if not self._call(name, gpu, found, ctypes.byref(count), since):
            return {}
        samples = sorted(found[: count.value], key=lambda sample: int(sample.time_us))
        if samples:
            self._since_us[index] = samples[-1].time_us
        return {sample.pid: min(sample.sm, 100) / 100 for sample in samples}

    def _call(self, name: str, *arguments: Any) -> bool:
        """Whether it has something to tell; OSError when it refuses."""
        code = getattr(self._nvml, name)(*arguments)
        if code in (_NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _TOO_SMALL):
            return False
        if code:
            raise OSError(f"{name} says {code}")
        return True
