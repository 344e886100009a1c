"""Arrays on a GPU that the thread does not use: what is made of them lies beside them. CuPy is a stand-in.

As CuPy's, it allocates, copies and waits on the device of the thread, whatever device the array is on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from distdbg.ops.call import Call, Kind
from distdbg.runtime.arrays.buffers import copy_of, empty_like, output_of, zeros_like
from distdbg.runtime.arrays.device_arrays import device_index, library_of
from distdbg.runtime.arrays.device_wait import wait_for_device
from distdbg.runtime.backends.staging import StagedCall
from distdbg.runtime.backends.ucc.memory import HeldMemory, give
from tests.unit.nccl.stand_in import StandInArray

OTHER = 1


class Cupy(ModuleType):
    """The devices on which something was done, and those that were waited for."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.here = threading.local()
        self.used: list[int] = []
        self.awaited: list[int] = []
        self.cuda = self
        self.ndarray = CupyArray

    @property
    def current(self) -> int:
        return int(getattr(self.here, "device", 0))

    def Device(self, number: int) -> Any:
        return Device(self, number)

    def get_current_stream(self) -> Any:
        return Device(self, self.current)

    def empty(self, shape: Any, dtype: Any) -> CupyArray:
        return self.made(np.empty(shape, dtype))

    def asarray(self, values: Any) -> CupyArray:
        return self.made(values)

    def made(self, values: Any) -> CupyArray:
        self.used.append(self.current)
        return CupyArray(values, self.current)


class Device:
    """Serves as its stream as well."""

    def __init__(self, cupy: Cupy, number: int) -> None:
        self._cupy, self._number, self._before = cupy, number, 0

    def __enter__(self) -> None:
        self._before, self._cupy.here.device = self._cupy.current, self._number

    def __exit__(self, *_: object) -> None:
        self._cupy.here.device = self._before

    def synchronize(self) -> None:
        self._cupy.awaited.append(self._number)


class CupyArray(StandInArray):
    """What is used of cupy.ndarray."""

    def copy(self, order: str = "C") -> CupyArray:
        return loaded().made(self.host.copy())

    def reshape(self, *shape: Any) -> CupyArray:
        return CupyArray(self.host.reshape(*shape), self.device.id)

    def __getitem__(self, index: Any) -> CupyArray:
        return CupyArray(self.host[index], self.device.id)

    def __setitem__(self, index: Any, value: Any) -> None:
        loaded().used.append(loaded().current)
        self.host[index] = getattr(value, "host", value)

    def set(self, values: Any) -> None:
        loaded().used.append(loaded().current)
        super().set(values)


class Tagged(CupyArray):
    """As a program makes its own of CuPy's class."""


def loaded() -> Cupy:
    cupy = sys.modules["cupy"]
    assert isinstance(cupy, Cupy)
    return cupy


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cupy]:
    made = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    yield made
    assert set(made.used) <= {OTHER}
    assert made.current == 0


def array(*shape: int) -> CupyArray:
    return CupyArray(np.ones(shape, np.float32), OTHER)


@contextmanager
def one_more(used: list[int]) -> Iterator[None]:
    before = len(used)
    yield
    assert len(used) > before


def test_new_arrays_and_copies_lie_on_the_device_of_the_array(cupy: Cupy) -> None:
    x = array(4)
    with one_more(cupy.used):
        made = [copy_of(x), empty_like(x, [3]), zeros_like(x)]
    assert [device_index(each) for each in made] == [OTHER] * 3


def test_the_stand_in_of_an_array_with_gaps_lies_beside_it(cupy: Cupy) -> None:
    buffer: Any = output_of(array(8)[::2])
    assert buffer.is_stand_in
    assert device_index(buffer.array) == buffer.device == OTHER
    with one_more(cupy.used):
        buffer.finish()


@pytest.mark.parametrize("step", [1, 2])
def test_what_the_host_brings_back_is_awaited_where_it_was_copied(cupy: Cupy, step: int) -> None:
    staged = StagedCall(Call(Kind.BROADCAST, (), (array(8)[::step],)))
    staged.bring_back()
    assert cupy.awaited == [OTHER]


def test_ucc_joins_arrays_on_their_device(cupy: Cupy) -> None:
    held = HeldMemory()
    give([array(2), array(2)], held)
    for finish in held.finish:
        finish()
    assert len(cupy.used) == 3


def test_a_class_made_of_cupys_is_cupys(cupy: Cupy) -> None:
    x = Tagged(np.ones(2), OTHER)
    assert library_of(x) is cupy
    wait_for_device([x])
    assert cupy.awaited == [OTHER]
