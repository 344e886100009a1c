"""View: the memory of a Python object, held as long as the View lives."""

from __future__ import annotations

import gc
import sys
from array import array

import numpy as np
import pytest

from distdbg import _native
from distdbg.ops.dtypes import Dtype


def test_view_knows_the_memory_of_an_array() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = _native.View(values, True, Dtype.float32)
    assert (view.nbytes, view.count, view.dtype, view.shape) == (24, 6, 15, (2, 3))
    assert view.address == values.ctypes.data
    assert view.array is values
    assert view.finish is None
    assert not view.readonly


def test_view_of_no_dtype_counts_the_items_of_the_buffer() -> None:
    view = _native.View(array("d", [1, 2]), False)
    assert (view.nbytes, view.count, view.dtype, view.shape) == (16, 2, -1, (2,))
    assert view.readonly


@pytest.mark.parametrize(
    ("shape", "count"), [((), 1), ((0,), 0), ((3, 0, 2), 0), ((1,), 1)], ids=str
)
def test_view_of_zero_size_and_zero_dim_arrays(shape: tuple[int, ...], count: int) -> None:
    view = _native.View(np.zeros(shape, np.int16), True, Dtype.int16)
    assert (view.nbytes, view.count, view.shape) == (2 * count, count, shape)


def test_view_of_none_is_empty() -> None:
    view = _native.View(None, False)
    assert (view.nbytes, view.count, view.shape, view.address) == (0, 0, (), 0)


def test_view_of_more_than_2_to_the_31_elements() -> None:
    values = np.zeros(2**31 + 5, np.uint8)  # never touched, so the system gives no memory for it
    view = _native.View(values, True, Dtype.uint8)
    assert view.count == view.nbytes == 2**31 + 5
    assert view.shape == (2**31 + 5,)


def test_view_refuses_what_is_not_contiguous_or_read_only() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        _native.View(np.zeros((4, 4))[:, 1], False)
    with pytest.raises(BufferError):
        _native.View(b"abc", True)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _native.View(frozen, True)
    _native.View(frozen, False)


def test_view_refuses_other_objects_and_dtypes() -> None:
    with pytest.raises(TypeError):
        _native.View(3, False)
    for code in (99, -2, Dtype.float64):
        with pytest.raises(ValueError, match="dtype"):
            _native.View(np.zeros(2, np.float32), False, code)


def test_view_holds_the_buffer_exactly_as_long_as_it_lives() -> None:
    memory = bytearray(8)
    view = _native.View(memory, True)
    with pytest.raises(BufferError):
        memory.append(1)
    del view
    memory.append(1)


def test_a_refused_view_keeps_nothing() -> None:
    memory = bytearray(6)
    with pytest.raises(ValueError, match="another size"):
        _native.View(memory, True, Dtype.float32)
    memory.append(1)


def test_views_leak_no_references() -> None:
    values = np.zeros(4, np.float32)
    before = sys.getrefcount(values)
    for _ in range(1000):
        view = _native.View(values, True, Dtype.float32)
        view.array = (values,)
        view.finish = lambda: None
        _ = view.shape
    del view
    gc.collect()
    assert sys.getrefcount(values) == before
