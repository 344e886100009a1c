"""A recording stand-in for CuPy, its NCCL module and arrays on a GPU. It claims nothing about hardware.

It writes down the calls that it gets, and moves no data. Events are over as soon as they are recorded, unless
the machine is told that a device hangs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import distdbg as dist
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.backends.nccl import library
from distdbg.runtime.backends.nccl.library import NcclLibrary

VERSION = 22703


class StandInArray:
    """Host memory that says of itself that it is on a GPU, with what is used of cupy.ndarray."""

    def __init__(self, values: Any, device: int = 0) -> None:
        self.host = np.asarray(values)
        self.device = SimpleNamespace(id=device)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("arrays on a device are not looked into")

    __hash__ = object.__hash__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.host.ctypes.data, False), "shape": self.shape, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.host.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        return self.host.strides

    @property
    def flags(self) -> Any:
        return self.host.flags

    @property
    def size(self) -> int:
        return self.host.size

    @property
    def nbytes(self) -> int:
        return self.host.nbytes

    @property
    def address(self) -> int:
        return self.host.ctypes.data

    def copy(self, order: str = "C") -> StandInArray:
        return StandInArray(self.host.copy(), self.device.id)

    def reshape(self, *shape: Any) -> StandInArray:
        return StandInArray(self.host.reshape(*shape), self.device.id)

    def __getitem__(self, index: Any) -> StandInArray:
        return StandInArray(self.host[index], self.device.id)

    def __setitem__(self, index: Any, value: StandInArray) -> None:
        self.host[index] = value.host

    def get(self, out: Any = None) -> Any:
        out[...] = self.host
        return out

    def set(self, values: Any) -> None:
        self.host[...] = values


class NcclError(RuntimeError):
    """As CuPy's."""


class CudaError(RuntimeError):
    """As CuPy's, which is made of a number."""


class Machine:
    """What all ranks of a test share: the calls they made, and how the devices behave."""

    def __init__(self) -> None:
        #: (communicator's rank, method, arguments), in the order of each rank.
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        #: What the calls of this thread belong to, where they name no communicator.
        self.here = threading.local()
        self.hangs = False
        #: Raised by the next call of a communicator.
        self.error: Exception | None = None
        self.last_error = ""
        self.aborted: set[int] = set()
        self.destroyed: set[int] = set()
        self.events: dict[int, StandInEvent] = {}
        #: What CUDA says of events; None: whether they are over.
        self.event_status: int | None = None
        self.bus_ids: dict[int, str] = {}
        self.capability = "90"

    def note(self, rank: int, method: str, *args: Any) -> None:
        self.here.rank = rank
        self.calls.append((rank, method, args))

    def of(self, rank: int) -> list[tuple[str, tuple[Any, ...]]]:
        return [(method, args) for at, method, args in self.calls if at == rank]

    def methods(self, rank: int) -> list[str]:
        return [method for method, _ in self.of(rank)]

    def library(self, version: int = VERSION) -> NcclLibrary:
        nccl = SimpleNamespace(
            NcclError=NcclError,
            NcclConfig=object,
            available=True,
            get_version=lambda: version,
            get_unique_id=lambda: bytes(range(128)),
            groupStart=lambda: self._loose("groupStart"),
            groupEnd=lambda: self._loose("groupEnd"),
            NcclCommunicator=lambda size, unique_id, rank: StandInCommunicator(
                self, size, unique_id, rank
            ),
        )
        cupy = SimpleNamespace(cuda=StandInCuda(self), zeros=_zeros, empty=_zeros)
        return NcclLibrary(cupy, nccl, StandInExtra(self))

    def _loose(self, method: str) -> None:
        self.calls.append((getattr(self.here, "rank", -1), method, ()))


class StandInExtra:
    """What CuPy does not bind."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def last_error(self, comm: int) -> str:
        return self._machine.last_error

    def make_premul_sum(self, factor: bytes, code: int, comm: int) -> int:
        self._machine.note(comm - 1, "make_premul_sum", factor, code)
        return 77

    def destroy_op(self, op: int, comm: int) -> None:
        self._machine.note(comm - 1, "destroy_op", op)


class StandInCommunicator:
    """Of one rank. Its address is its rank plus one."""

    def __init__(self, machine: Machine, size: int, unique_id: bytes, rank: int) -> None:
        assert len(unique_id) == 128
        self._machine, self.size, self.rank = machine, size, rank
        self.comm = rank + 1
        machine.here.rank = rank

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any) -> None:
            self._machine.here.rank = self.rank
            error, self._machine.error = self._machine.error, None
            if error is not None:
                raise error
            self._machine.note(self.rank, method, *args)

        if method.startswith("_"):
            raise AttributeError(method)
        return call

    def commSplit(self, color: int, key: int) -> StandInCommunicator | None:
        self._machine.note(self.rank, "commSplit", color, key)
        if color < 0:
            return None
        return StandInCommunicator(self._machine, self.size, bytes(128), key)

    def check_async_error(self) -> None:
        """None."""

    def abort(self) -> None:
        self._machine.aborted.add(self.rank)

    def destroy(self) -> None:
        self._machine.destroyed.add(self.rank)


class StandInCuda:
    """What is used of cupy.cuda."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._streams = itertools.count(100)
        self._current = threading.local()
        self.runtime = SimpleNamespace(
            getDeviceCount=lambda: 8,
            memcpyDeviceToDevice=3,
            eventQuery=lambda ptr: self._machine.events[ptr].status,
            CUDARuntimeError=CudaError,
            memcpyAsync=lambda *args: machine.note(
                getattr(machine.here, "rank", -1), "memcpyAsync", *args
            ),
        )

    def Stream(self, non_blocking: bool, priority: int) -> StandInStream:
        return StandInStream(next(self._streams), priority)

    def Event(self, disable_timing: bool) -> StandInEvent:
        return StandInEvent(self._machine)

    def Device(self, number: int = 0) -> Any:
        return StandInDevice(self._machine, number)

    def get_current_stream(self) -> StandInStream:
        if not hasattr(self._current, "stream"):
            self._current.stream = StandInStream(1000 + threading.get_ident() % 1000, 0)
        stream: StandInStream = self._current.stream
        return stream


class StandInDevice:
    """One of the GPUs, each of which has a place of its own."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.id = number
        self.pci_bus_id = machine.bus_ids.get(number, f"0000:{number:02x}:00.0")
        self.compute_capability = machine.capability

    def __enter__(self) -> StandInDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class StandInStream:
    """Remembers what it was told to wait for."""

    def __init__(self, ptr: int, priority: int) -> None:
        self.ptr, self.priority = ptr, priority
        self.waits: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)

    def __enter__(self) -> StandInStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class StandInEvent:
    """Over as soon as it is recorded, or when the device no longer hangs."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.stream: Any = None
        self.is_over = False
        self.ptr = len(machine.events) + 1
        machine.events[self.ptr] = self

    def record(self, stream: Any) -> None:
        self.stream = stream
        # What the program itself has queued ends always.
        self.is_over = not self._machine.hangs or stream.ptr >= 1000

    @property
    def status(self) -> int:
        if self._machine.event_status is not None:
            return self._machine.event_status
        return 0 if self.done else 600

    @property
    def done(self) -> bool:
        return self.is_over or not self._machine.hangs


def _zeros(shape: int, dtype: str) -> StandInArray:
    return StandInArray(np.zeros(shape, dtype))


def use(make_communicator: Any) -> None:
    """Have NCCL make these communicators."""
    library.load().nccl.NcclCommunicator = make_communicator


def of_rank(values: Any) -> StandInArray:
    return StandInArray(np.array(values, np.float32), dist.get_rank())


def gpu(values: Any) -> StandInArray:
    return StandInArray(np.array(values, np.float32))


def sum_of(values: Any) -> Any:
    return calls.all_reduce(gpu(values), ReduceOp.SUM)


def raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail
