"""A stand-in for CuPy's runtime, in which ranks that are threads count as processes.

It claims nothing about hardware. A device has memory of the host, and what is queued is done at once, or as
late as it may be where a test wants that: when somebody asks, and only with more behind it (SlowDevice).
Memory of another process can be used only where a handle to it was opened, through the address that this
gave. A kernel is told by the first line of its text, and computed by the host's engine.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import distdbg as dist
from distdbg import _native
from distdbg.native import View
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType
from distdbg.runtime.backends.gpu.driver import Driver
from tests.unit.nccl.stand_in import StandInArray


def scaled(x: Any, factor: float) -> Any:
    """As PREMUL_SUM multiplies: the factor is rounded to the data type first, each part of a number by it."""
    part = x.real.dtype
    with np.errstate(all="ignore"):
        return (x.view(part) * np.array(factor).astype(part)).view(x.dtype)


#: Above all addresses of the host: which mapping an address belongs to.
_TAG = 48
_POOL_NBYTES = 1 << 16
_ALIGN = 512


class CudaError(RuntimeError):
    """As CuPy's, which is made of a number."""


class Allocation:
    """What cudaMalloc gives to one process."""

    def __init__(self, owner: int, nbytes: int, buffer_id: int) -> None:
        self.owner, self.nbytes, self.buffer_id = owner, nbytes, buffer_id
        self.memory = np.zeros(nbytes + _ALIGN, np.uint8)
        self.base = -(-self.memory.ctypes.data // _ALIGN) * _ALIGN
        self.used = 0
        self.is_freed = False


class SlowDevice:
    """Copies of one process, in order: it does one when asked, and has `depth` of them, or all that come."""

    def __init__(self, depth: int, total: int) -> None:
        self._depth, self._left = depth, total
        self._queue: deque[tuple[Callable[[], None], ...]] = deque()
        self._queued = self._done = 0
        self._after: dict[int, int] = {}

    def queue(self, *steps: Callable[[], None]) -> None:
        self._queue.append(steps)
        self._queued += 1
        self._left -= 1

    def record(self, event: int) -> None:
        self._after[event] = self._queued

    def has_passed(self, event: int) -> bool:
        after = self._after.get(event, 0)
        if self._done < after and (len(self._queue) >= self._depth or not self._left):
            for step in self._queue.popleft():
                step()
            self._done += 1
        return self._done >= after


class Machine:
    """One GPU and the processes that use it: what they did, and how it behaves."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.allocations: list[Allocation] = []
        #: By tag: the process that opened it, what, and whether it has it open still.
        self.mappings: list[tuple[int, Allocation]] = []
        self.open: set[int] = set()
        self.pinned: list[Any] = []
        #: Whether copies from and to memory that is not pinned are expected.
        self.takes_any_memory = False
        #: By number, who has it: those that were made, and those that were opened.
        self.events: dict[int, int] = {}
        self.numbers = itertools.count(1)
        self.open_events: set[int] = set()
        self.calls: dict[int, list[tuple[str, Any]]] = defaultdict(list)
        #: What a process cannot do: "export" or "open".
        self.cannot: set[tuple[int, str]] = set()
        #: Whether the events of a process never pass.
        self.hangs: set[int] = set()
        self.have_waited: set[int] = set()
        #: Set by the first copy.
        self.has_copied = threading.Event()
        #: What the device says of each copy.
        self.copy_ms = 1.5
        #: By process, where copies are not done at once.
        self.slow: dict[int, SlowDevice] = {}
        #: By number, and those in which the program of a process works, where it holds one up.
        self.streams: dict[int, _Stream] = {}
        self.held: dict[int, _Stream] = {}
        #: By event: what its stream had yet to wait for when it was recorded.
        self.before: dict[int, list[Callable[[], bool]]] = {}
        #: Those of other processes, by the number here: the number there.
        self.opened_events: dict[int, int] = {}
        #: Called by each copy, with how many bytes.
        self.on_copy: Callable[[int], None] = lambda nbytes: None
        #: Who presses Ctrl-C while a process waits for its device; once.
        self.interrupts: set[int] = set()
        #: Whether CUDA has an error for it.
        self.fails: set[int] = set()
        #: Whether CUDA makes no event for it.
        self.makes_no_event: set[int] = set()

    # ------------------------------------------------------------------------- for tests

    def driver(self) -> Driver:
        cuda = SimpleNamespace(
            runtime=_Runtime(self),
            Device=_Device,
            Stream=lambda non_blocking=False: _Stream(self),
            Event=lambda disable_timing=False, interprocess=False: _Event(self, interprocess),
            get_elapsed_time=lambda begin, end: self.copy_ms,
            get_current_stream=lambda: self.held.get(_me()) or _Stream(self),
            alloc_pinned_memory=self._pin,
        )
        cupy = SimpleNamespace(cuda=cuda, RawModule=lambda code, options: _Module(self, code))
        return Driver(cupy, _Allocations(self))

    def array(self, values: Any, dtype: Any = np.float32) -> GpuArray:
        """On the GPU of the rank that calls, in its pool."""
        wanted = np.asarray(values, dtype)
        with self.lock:
            pool = self._pool(_me(), wanted.nbytes)
            at = pool.base + pool.used - pool.memory.ctypes.data
            pool.used += -(-max(1, wanted.nbytes) // _ALIGN) * _ALIGN
        place = pool.memory[at : at + wanted.nbytes].view(wanted.dtype).reshape(wanted.shape)
        place[...] = wanted
        return GpuArray(place, self)

    def hold(self) -> threading.Event:
        """What the calling rank queues from here on is done when the result is set."""
        go_on = threading.Event()
        self.held[_me()] = _Stream(self)
        self.held[_me()].before.append(go_on.is_set)
        return go_on

    def let_go(self) -> None:
        """The calling rank queues in a stream that nothing holds up."""
        self.held.pop(_me(), None)

    def has_come_to(self, event: int) -> bool:
        """Whether what was before it in its stream is done."""
        return not self.left_before(event)

    def left_before(self, event: int) -> list[Callable[[], bool]]:
        """What is not done of that."""
        made = self.opened_events.get(event, event)
        return [is_done for is_done in self.before.get(made, ()) if not is_done()]

    def free_pool(self) -> None:
        """cudaFree all that the calling rank has."""
        with self.lock:
            for each in self.allocations:
                if each.owner == _me():
                    each.is_freed = True

    def left_open(self) -> int:
        return len(self.open) + len(self.open_events)

    def names(self, process: int) -> list[str]:
        return [name for name, _ in self.calls[process]]

    # ------------------------------------------------------------------------ for the device

    def note(self, name: str, what: Any = None) -> None:
        self.calls[_me()].append((name, what))

    def new_event(self) -> int:
        number = next(self.numbers)
        self.events[number] = _me()
        return number

    def real(self, address: int, nbytes: int) -> int:
        """Where an address of this process is; an error where it is nowhere."""
        tag, place = address >> _TAG, address & ((1 << _TAG) - 1)
        with self.lock:
            if tag:
                process, allocation = self.mappings[tag - 1]
                assert process == _me()
                assert tag in self.open, "a mapping that is not open"
            else:
                found = self.find(place)
                if found is None:
                    assert self.takes_any_memory or any(
                        at <= place and place + nbytes <= at + n for at, n, _ in self.pinned
                    )
                    return place
                allocation = found
            assert not allocation.is_freed
            assert allocation.base <= place
            assert place + nbytes <= allocation.base + allocation.nbytes
        return place

    def find(self, address: int) -> Allocation | None:
        for each in self.allocations:
            if (
                each.owner == _me() and not each.is_freed
                and each.base <= address < each.base + each.nbytes
            ):  # fmt: skip
                return each
        return None

    def view(self, address: int, nbytes: int) -> Any:
        place = self.real(address, nbytes)
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(place), np.uint8)

    def _pool(self, owner: int, nbytes: int) -> Allocation:
        for each in self.allocations:
            if (
                each.owner == owner
                and not each.is_freed
                and each.nbytes - each.used > nbytes + _ALIGN
            ):
                return each
        made = Allocation(
            owner, max(_POOL_NBYTES, 2 * nbytes + _ALIGN), 100 + len(self.allocations)
        )
        self.allocations.append(made)
        return made

    def _pin(self, nbytes: int) -> Any:
        memory = np.zeros(nbytes, np.uint8)
        with self.lock:
            self.pinned.append((memory.ctypes.data, nbytes, memory))
        return memory.data


class _Device:
    def __init__(self, number: int = 0) -> None:
        self.id = number

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


#: The one device, as CuPy's arrays name it.
_GPU = _Device()


class GpuArray(StandInArray):
    """An array in the pool of its rank."""

    def __init__(self, place: Any, machine: Machine) -> None:
        super().__init__(place)
        self.device = _GPU
        self.machine = machine

    def copy(self, order: str = "C") -> GpuArray:
        return self.machine.array(np.ascontiguousarray(self.host), self.host.dtype)

    def __getitem__(self, index: Any) -> GpuArray:
        return GpuArray(self.host[index], self.machine)

    def reshape(self, *shape: Any) -> GpuArray:
        return GpuArray(self.host.reshape(*shape), self.machine)


def _me() -> int:
    return dist.get_rank()


class _Allocations:
    """What CuPy does not bind."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def allocation(self, address: int) -> tuple[int, int]:
        found = self._machine.find(address)
        if found is None:
            raise CudaError(f"no allocation at {address:#x}")
        return found.base, found.nbytes

    def buffer_id(self, address: int) -> int | None:
        found = self._machine.find(address)
        return None if found is None else found.buffer_id


class _Runtime:
    """What is used of cupy.cuda.runtime."""

    CUDARuntimeError = CudaError
    memcpyDefault = 4

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        machine = self._machine
        machine.note("copy", nbytes)
        machine.on_copy(nbytes)
        places = machine.real(target, nbytes), machine.real(source, nbytes)

        def copy() -> None:
            ctypes.memmove(*places, nbytes)
            machine.has_copied.set()

        queue = machine.streams[stream]
        if queue.is_held_up():
            queue.waiting.append(copy)
            return None

        slow = machine.slow.get(_me())
        if slow is None:
            return copy()
        slow.queue(copy, lambda: machine.note("copied", nbytes))
        return None

    def eventQuery(self, event: int) -> int:
        assert self._machine.events[event] == _me()
        if _me() in self._machine.fails:
            return 700
        if _me() in self._machine.interrupts:
            self._machine.interrupts.discard(_me())
            raise KeyboardInterrupt
        for stream in list(self._machine.streams.values()):
            stream.go_on()
        if not self._machine.has_come_to(event):
            return 600
        slow = self._machine.slow.get(_me())
        if _me() not in self._machine.hangs:
            return 0 if slow is None or slow.has_passed(event) else 600
        self._machine.have_waited.add(_me())
        return 600

    def streamWaitEvent(self, stream: int, event: int) -> None:
        assert self._machine.events[event] == _me()
        if event in self._machine.open_events:
            self._machine.note("wait for a peer's event")
        self._machine.streams[stream].before += self._machine.left_before(event)

    def ipcGetEventHandle(self, event: int) -> bytes:
        assert self._machine.events[event] == _me()
        return f"{event} {_me()}".encode().ljust(64, b"\0")

    def ipcOpenEventHandle(self, handle: bytes) -> int:
        assert int(handle.rstrip(b"\0").split()[1]) != _me()
        number = self._machine.new_event()
        self._machine.opened_events[number] = int(handle.rstrip(b"\0").split()[0])
        self._machine.open_events.add(number)
        self._machine.note("open event")
        return number

    def eventDestroy(self, event: int) -> None:
        assert self._machine.events.pop(event) == _me()
        self._machine.open_events.remove(event)

    def ipcGetMemHandle(self, base: int) -> bytes:
        found = self._machine.find(base)
        assert found is not None
        assert found.base == base
        if (_me(), "export") in self._machine.cannot:
            raise CudaError("cudaErrorInvalidValue: not of cudaMalloc")
        self._machine.note("export", found.buffer_id)
        return str(found.buffer_id).encode().ljust(64, b"\0")

    def ipcOpenMemHandle(self, handle: bytes) -> int:
        machine = self._machine
        if (_me(), "open") in machine.cannot:
            raise CudaError("cudaErrorMapBufferObjectFailed")
        number = int(handle.rstrip(b"\0"))
        with machine.lock:
            [found] = [each for each in machine.allocations if each.buffer_id == number]
            assert found.owner != _me()
            assert not found.is_freed
            machine.mappings.append((_me(), found))
            tag = len(machine.mappings)
            machine.open.add(tag)
        machine.note("open", number)
        return tag << _TAG | found.base

    def ipcCloseMemHandle(self, address: int) -> None:
        tag = address >> _TAG
        process, allocation = self._machine.mappings[tag - 1]
        assert process == _me()
        assert address & ((1 << _TAG) - 1) == allocation.base
        self._machine.open.remove(tag)
        self._machine.note("close", allocation.buffer_id)


class _Stream:
    """What is queued in it is done at once, or when all that it waits for has come."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.ptr = next(machine.numbers)
        self.before: list[Callable[[], bool]] = []
        self.waiting: deque[Callable[[], None]] = deque()
        machine.streams[self.ptr] = self

    def is_held_up(self) -> bool:
        self.before = [is_done for is_done in self.before if not is_done()]
        return bool(self.before)

    def go_on(self) -> None:
        while self.waiting and not self.is_held_up():
            self.waiting.popleft()()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Event:
    def __init__(self, machine: Machine, is_shared: bool) -> None:
        if _me() in machine.makes_no_event:
            raise CudaError("out of memory")
        self._machine, self._is_shared = machine, is_shared
        self.ptr = machine.new_event()

    def record(self, stream: Any) -> None:
        if self._is_shared:
            self._machine.note("record for the peers")
        stream.is_held_up()
        self._machine.before[self.ptr] = list(stream.before)
        if _me() in self._machine.slow:
            self._machine.slow[_me()].record(self.ptr)


class _Module:
    """A text whose first line says what it computes."""

    def __init__(self, machine: Machine, text: str) -> None:
        self._machine = machine
        found = re.match(r"// (\d+) (\d+) (\d+) (\d+):", text)
        assert found is not None
        dtype, op, self._sources, self._targets = (int(number) for number in found.groups())
        self._dtype, self._op = Dtype(dtype), RedOpType(op)

    def get_function(self, name: str) -> Any:
        width = 16 // self._dtype.itemsize if name.endswith("_words") else 1

        def launch(grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> None:
            nbytes = int(arguments[-1]) * width * self._dtype.itemsize
            machine, many, kind = self._machine, self._sources, self._dtype.to_numpy()
            places = [int(place) for place in arguments[: many + self._targets]]
            if width > 1:
                assert all(place % 16 == 0 for place in places)
            views = [machine.view(place, nbytes).view(kind) for place in places]
            sources = views[:many]
            op = self._op
            if op is RedOpType.PREMUL_SUM:
                op = RedOpType.SUM
                factors = arguments[many + self._targets : -1]
                sources = [
                    scaled(x, float(factor)) for x, factor in zip(sources, factors, strict=True)
                ]
            result = np.zeros_like(sources[0])
            _native.fold(
                int(op), int(self._dtype), View(result, True), [View(x, False) for x in sources]
            )
            for target in views[many:]:
                target[...] = result
            machine.note("kernel", (name, nbytes))

        return launch
