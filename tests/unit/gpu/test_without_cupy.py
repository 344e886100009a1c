"""CUDA's driver without CuPy, as far as chunks need it. The driver is a stand-in: its device is the host."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.backends.gpu import chunks, driver, engine, messages
from distdbg.runtime.backends.gpu.cuda_without_cupy import CudaDriverError, CudaWithoutCupy
from distdbg.runtime.backends.gpu.driver import Driver
from tests.unit.gpu.moving import move, run
from tests.unit.gpu.stand_in import Machine

CHUNK = 4096
NBYTES = 5 * CHUNK + 100
INVALID_CONTEXT = 201
INVALID_HANDLE = 400


class StandInLibrary:
    """libcuda.so.1: what is queued is done at once, and each thread has a stack of contexts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.live: dict[int, Any] = {}
        self.stacks = threading.local()
        self.copied: list[int] = []
        self.asked: dict[int, int] = {}

    def _make(self, reference: Any, what: Any) -> int:
        with self.lock:
            address = what.ctypes.data if isinstance(what, np.ndarray) else 1000 + len(self.asked)
            self.asked[address] = 0
            self.live[address] = what
        reference._obj.value = address
        return 0

    def _end(self, pointer: Any) -> int:
        with self.lock:
            return 0 if self.live.pop(pointer.value, None) is not None else INVALID_HANDLE

    def _contexts(self) -> list[int]:
        return self.stacks.__dict__.setdefault("all", [])

    def cuDeviceGet(self, number: Any, device: int) -> int:
        number._obj.value = device
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = 77 + device.value
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self._contexts().append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        context._obj.value = self._contexts().pop()
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        return self._make(stream, "stream") if self._contexts() else INVALID_CONTEXT

    def cuEventCreate(self, event: Any, flags: int) -> int:
        return self._make(event, "event") if self._contexts() else INVALID_CONTEXT

    def cuMemHostAlloc(self, memory: Any, nbytes: Any, flags: int) -> int:
        return self._make(memory, np.zeros(nbytes.value, np.uint8))

    cuStreamDestroy_v2 = cuEventDestroy_v2 = cuMemFreeHost = _end

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        return 0 if event.value in self.live and self._contexts() else INVALID_CONTEXT

    def cuEventQuery(self, event: Any) -> int:
        """The first time it has not passed."""
        if event.value not in self.live:
            return INVALID_HANDLE
        self.asked[event.value] += 1
        return 600 if self.asked[event.value] == 1 else 0

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> int:
        return 0 if self.live.get(stream.value) == "stream" else INVALID_HANDLE

    def cuMemcpyAsync(self, target: Any, source: Any, nbytes: Any, stream: Any) -> int:
        if not self._contexts():
            return INVALID_CONTEXT
        ctypes.memmove(target.value, source.value, nbytes.value)
        self.copied.append(nbytes.value)
        return 0


@pytest.fixture
def library(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInLibrary]:
    made = StandInLibrary()
    monkeypatch.setattr(
        driver, "_driver", Driver(CudaWithoutCupy(made), machine.driver().allocations)
    )
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    for module in (messages, engine):  # what the program's stream is, torch says
        monkeypatch.setattr(module, "current_stream", lambda *_: SimpleNamespace(ptr=0))
    yield made
    monkeypatch.undo()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_goes_in_pieces(
    machine: Machine, library: StandInLibrary, is_async: bool
) -> None:
    values = np.random.default_rng(0).integers(0, 256, NBYTES, np.uint8)

    def program() -> bool:
        x = machine.array(values * (1 - dist.get_rank()), np.uint8)
        move(x, is_async=is_async)
        return bool((x.host == values).all())

    assert run(program) == [True, True]
    assert sorted(library.copied) == [100] * 2 + [CHUNK] * 10
    assert not machine.names(0)  # nothing was asked of CuPy


def test_ops_of_all_ranks_go_in_chunks(machine: Machine, library: StandInLibrary) -> None:
    def program() -> list[Any]:
        x = machine.array(np.full(3 << 20, dist.get_rank() + 1), np.float32)
        dist.all_reduce(x)
        got = machine.array(np.zeros(2 * 3), np.int32)
        dist.all_to_all_single(got, machine.array(np.arange(6) + 10 * dist.get_rank(), np.int32))
        return [set(x.host.tolist()), got.host.tolist()]

    assert run(program) == [
        [{3.0}, [0, 1, 2, 10, 11, 12]],
        [{3.0}, [3, 4, 5, 13, 14, 15]],
    ]
    assert library.copied


def test_what_was_made_is_given_back(library: StandInLibrary) -> None:
    cuda = CudaWithoutCupy(library)
    one = Driver(cuda, None)  # type: ignore[arg-type]  # no allocation is asked for
    with one.on_device(0):
        stream = one.stream()
        event = one.event(stream)
        memory = one.pinned(100)
        memory[:] = 7
        part = memory[10:]
        del memory
        assert (part == 7).all()
        assert len(library.live) == 3
        assert (one.has_passed(event), one.has_passed(event)) == (False, True)
    del stream, event, part
    assert not library.live


def test_errors_are_raised_as_numbers(library: StandInLibrary) -> None:
    one = Driver(CudaWithoutCupy(library), None)  # type: ignore[arg-type]  # as above
    with pytest.raises(CudaDriverError, match="CUDA error 201"):
        one.stream()  # outside of a device
    with pytest.raises(CudaDriverError, match="CUDA error 400"):
        one.has_passed_at(5)


@pytest.mark.parametrize(
    ("torch", "has_gpu", "expected"),
    [("12.6", True, True), (None, True, False), ("12.6", False, False)],
)
def test_a_torch_for_cuda_is_enough(
    monkeypatch: pytest.MonkeyPatch, torch: str | None, has_gpu: bool, expected: bool
) -> None:
    monkeypatch.setattr(driver, "_driver", None)
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(driver, "Path", lambda path: _Devices(has_gpu))
    version = SimpleNamespace(version=SimpleNamespace(cuda=torch))
    monkeypatch.setitem(sys.modules, "torch", version)  # type: ignore[arg-type]  # a stand-in
    assert driver.is_likely() is expected
    assert not driver.has_cupy()


class _Devices:
    """/dev."""

    def __init__(self, has_gpu: bool) -> None:
        self._has_gpu = has_gpu

    def exists(self) -> bool:
        return False

    def glob(self, _: str) -> list[str]:
        return ["nvidia0"] if self._has_gpu else []
