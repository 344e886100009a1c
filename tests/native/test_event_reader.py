"""Starts and ends of ops on a GPU, read by a native thread from a stand-in for CUDA's driver.

The stand-in is compiled here, and claims nothing about hardware.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.native import EventReader, Form, NativeError, RecordedOp, Recorder
from distdbg.ops.call import Kind
from distdbg.record.entries import OpEntry
from distdbg.record.reader import read_record
from distdbg.runtime.backends.nccl import events, library, watchdog
from tests.native.moments import comes, spin_ms
from tests.unit.nccl.stand_in import Machine, StandInArray, StandInEvent

NOT_READY = 600


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is missing")
    made = tmp_path_factory.mktemp("driver") / "libcuda.so"
    source = Path(__file__).with_name("cuda_events.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return str(made)


@pytest.fixture
def elapsed(driver: str) -> Iterator[Callable[[float], None]]:
    """Sets how long the device says that it took, in ms."""
    library = ctypes.CDLL(driver)
    library.set_elapsed.argtypes = [ctypes.c_float]
    library.set_elapsed.restype = None
    yield library.set_elapsed
    library.set_elapsed(-1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank00000.ddr"


@pytest.fixture
def reader(driver: str) -> Iterator[EventReader]:
    reader = EventReader(driver)
    yield reader
    reader.close()


def event() -> ctypes.c_int:
    return ctypes.c_int(NOT_READY)


def begin(path: Path) -> RecordedOp:
    recorder = Recorder.create(os.fsencode(path), 0, 1, "n14", "boot", "1", "3", "run", "[]", 16)
    group = recorder.add_group("0", "", "0", "nccl", 1, 0, 0)
    form = Form(b"{}", "all_reduce", int(Kind.ALL_REDUCE), 8, 0, "float32")
    return recorder.begin(group, form, 1, 0, -1, 0)


def find(path: Path) -> OpEntry:
    return read_record(path).ops[-1]


def test_the_start_and_the_end_are_written_as_the_device_passes_them(
    path: Path, reader: EventReader
) -> None:
    op, ready, end = begin(path), event(), event()
    op.watch(reader, ctypes.addressof(ready), ctypes.addressof(end), 3)
    assert find(path).started_ns is None
    ready.value = 0
    assert comes(lambda: find(path).started_ns is not None)
    assert find(path).ended_ns is None
    end.value = 0
    assert comes(lambda: find(path).ended_ns is not None)
    assert (find(path).status_label, find(path).source) == ("ok", 3)


def test_how_long_an_op_took_the_device_says(
    path: Path, reader: EventReader, elapsed: Callable[[float], None]
) -> None:
    elapsed(0.25)
    op, begun, end = begin(path), ctypes.c_int(0), event()
    op.watch(reader, ctypes.addressof(begun), ctypes.addressof(end), -1)
    assert comes(lambda: find(path).started_ns is not None)
    spin_ms(2)
    end.value = 0
    assert comes(lambda: find(path).ended_ns is not None)
    found = find(path)
    assert found.started_ns is not None
    assert found.ended_ns is not None
    assert found.ended_ns - found.started_ns == 250_000


def test_it_says_so_too_when_python_sees_the_end_first(
    path: Path, reader: EventReader, elapsed: Callable[[float], None]
) -> None:
    elapsed(0.5)
    op, begun, end = begin(path), event(), event()
    op.watch(reader, ctypes.addressof(begun), ctypes.addressof(end), -1)
    spin_ms(2)
    reader.close()
    begun.value = end.value = 0
    op.started()
    op.ended(0, 2)
    found = find(path)
    assert found.started_ns is not None
    assert found.ended_ns is not None
    assert found.ended_ns - found.started_ns == 500_000
    assert (found.status_label, found.source) == ("ok", 2)


def test_no_op_starts_before_it_was_called(
    path: Path, reader: EventReader, elapsed: Callable[[float], None]
) -> None:
    elapsed(1e9)
    op, passed = begin(path), ctypes.c_int(0)
    op.watch(reader, ctypes.addressof(passed), ctypes.addressof(passed), -1)
    assert comes(lambda: find(path).ended_ns is not None)
    assert find(path).started_ns == find(path).issued_ns


def test_the_driver_is_asked_in_the_context_of_who_watches(path: Path, reader: EventReader) -> None:
    op, ready, end = begin(path), ctypes.c_int(0), ctypes.c_int(0)
    op.watch(reader, ctypes.addressof(ready), ctypes.addressof(end), -1)
    assert comes(lambda: find(path).ended_ns is not None)  # the stand-in refuses elsewhere


def test_an_event_that_failed_is_left_to_whoever_tells_it(
    path: Path, reader: EventReader, driver: str
) -> None:
    op, ready, end = begin(path), event(), ctypes.c_int(719)
    op.watch(reader, ctypes.addressof(ready), ctypes.addressof(end), -1)
    other, passed = begin(path.with_name("rank00001.ddr")), ctypes.c_int(0)
    other.watch(reader, ctypes.addressof(passed), ctypes.addressof(passed), -1)
    assert comes(lambda: find(path.with_name("rank00001.ddr")).ended_ns is not None)
    assert find(path).ended_ns is None
    op.ended(2, -1)
    assert find(path).status_label != "ok"


def test_no_event_is_asked_for_after_it_was_let_go_of(
    path: Path, reader: EventReader, driver: str
) -> None:
    times_asked = ctypes.CDLL(driver).times_asked
    op, ready, end = begin(path), event(), event()
    op.watch(reader, ctypes.addressof(ready), ctypes.addressof(end), -1)
    assert comes(lambda: times_asked() > 0)
    op.stop_watching()
    before = times_asked()
    ready.value = end.value = 0
    other, passed = begin(path.with_name("rank00001.ddr")), ctypes.c_int(0)
    other.watch(reader, ctypes.addressof(passed), ctypes.addressof(passed), -1)
    assert comes(lambda: find(path.with_name("rank00001.ddr")).ended_ns is not None)
    assert times_asked() == before + 2
    assert find(path).started_ns is None


def test_a_driver_that_is_not_there_is_told(tmp_path: Path, driver: str) -> None:
    with pytest.raises(NativeError, match=r"libcuda\.so\.0"):
        EventReader(str(tmp_path / "libcuda.so.0"))
    with pytest.raises(NativeError, match="no cuEventQuery"):
        EventReader("libm.so.6")
    assert events.event_reader(str(tmp_path / "libcuda.so.0")) is None
    assert events.event_reader(None) is None


class DriversEvent(StandInEvent):
    """An event that the stand-in for the driver knows as well."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.memory = ctypes.c_int(0)
        self.ptr = ctypes.addressof(self.memory)
        machine.events[self.ptr] = self

    def record(self, stream: Any) -> None:
        super().record(stream)
        self.memory.value = self.status


def test_ops_over_nccl_end_in_the_record_with_no_python_thread_beside_them(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    used = machine.library()
    used.driver = driver  # type: ignore[misc]
    made: list[DriversEvent] = []

    def make_event(disable_timing: bool) -> DriversEvent:
        made.append(DriversEvent(machine))
        return made[-1]

    used.cupy.cuda.Event = make_event
    monkeypatch.setattr(library, "_library", used)
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(watchdog.watchdog, "add", lambda pending: None)
    path = tmp_path / "rank00000.ddr"

    def op() -> OpEntry:
        return next(op for op in read_record(path).ops if op.name == "broadcast")

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        machine.hangs = True
        work = dist.broadcast(StandInArray(np.ones(3)), 0, group=pg, async_op=True)
        assert work is not None
        ready, begun, end = made[-3:]
        assert begun.stream.waits == [
            ready
        ]  # so it comes after what the program and the group had queued
        assert op().started_ns is None
        begun.memory.value = 0
        assert comes(lambda: op().started_ns is not None)
        assert op().ended_ns is None
        end.memory.value = 0
        assert comes(lambda: op().ended_ns is not None)
        machine.hangs = False
        work.wait()

    dist.run_threads(program, 1, timeout_s=60)
    assert op().status_label == "ok"


def test_an_op_that_was_broken_off_does_not_end_well(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    used = machine.library()
    used.driver = driver  # type: ignore[misc]
    made: list[DriversEvent] = []

    def make_event(disable_timing: bool) -> DriversEvent:
        made.append(DriversEvent(machine))
        return made[-1]

    used.cupy.cuda.Event = make_event
    monkeypatch.setattr(library, "_library", used)
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        machine.hangs = True
        work = dist.broadcast(StandInArray(np.ones(3)), 0, group=pg, async_op=True, timeout=0.1)
        assert work is not None
        while not machine.aborted:
            pass  # the limit
        made[-1].memory.value = 0  # the device lets go of it
        with pytest.raises(dist.DistError):
            work.wait(timeout=10)

    dist.run_threads(program, 1, timeout_s=60)
    op = next(op for op in read_record(tmp_path / "rank00000.ddr").ops if op.name == "broadcast")
    assert op.status_label == "timeout"
