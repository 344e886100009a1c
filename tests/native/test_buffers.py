"""as_input and as_output: every kind of array in, memory or a clear UsageError out."""

from __future__ import annotations

from array import array
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from distdbg import _native
from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.arrays.buffers import (
    Array,
    as_input,
    as_output,
    copy_of,
    cut,
    empty_like,
    numel,
    overlaps,
)


class Exporter:
    """An array that is known through DLPack only."""

    def __init__(self, values: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)) -> None:
        self.values = values
        self.device = device

    def __dlpack__(self, **options: object) -> object:
        return self.values.__dlpack__(**options)  # type: ignore[arg-type]  # passed through as given

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("dtype", Dtype, ids=str)
def test_numpy_arrays_of_every_dtype_are_used_in_place(dtype: Dtype) -> None:
    values = np.zeros((2, 3), dtype.to_numpy())
    for buffer in (as_input(values), as_output(values)):
        assert buffer.address == values.ctypes.data
        assert (buffer.dtype, buffer.shape, buffer.count) == (dtype, (2, 3), 6)
        assert buffer.nbytes == values.nbytes
        assert buffer.array is values
        assert buffer.finish is None


@pytest.mark.parametrize("dtype", [np.int32, ml_dtypes.bfloat16])
def test_strided_outputs_are_written_back_by_finish(dtype: Any) -> None:
    values = np.arange(12).astype(dtype).reshape(3, 4)
    window = values[:, 1::2]
    buffer = as_output(window)
    assert buffer.array is window
    assert (buffer.shape, buffer.nbytes) == ((3, 2), window.nbytes)
    _fill(buffer, np.arange(6).astype(dtype))
    assert buffer.finish is not None
    buffer.finish()
    assert window.astype(int).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert values[:, 0].astype(int).tolist() == [0, 4, 8]


def _fill(buffer: Any, values: np.ndarray[Any, Any]) -> None:
    source = _native.View(values.view(np.uint8), False)
    _native.fold(0, Dtype.uint8, buffer, [source])  # a fold of one source is a copy


def test_strided_inputs_are_read_in_order() -> None:
    values = np.arange(12, dtype=np.int64).reshape(3, 4)
    buffer = as_input(values.T)
    copied = np.zeros(12, np.int64)
    _native.fold(0, Dtype.int64, as_output(copied), [buffer])
    assert copied.tolist() == values.T.ravel().tolist()
    assert buffer.finish is None


def test_subclasses_and_memory_maps_are_arrays(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "m", np.float32, "w+", shape=(3,))
    assert as_output(mapped).array is mapped
    with pytest.raises(UsageError, match="masked"):
        as_input(np.ma.masked_array([1, 2], [True, False]))


@pytest.mark.parametrize(
    ("memory", "dtype", "count"),
    [
        (bytearray(3), Dtype.uint8, 3),
        (array("l", [1, 2]), Dtype.int64, 2),
        (array("f", [1]), Dtype.float32, 1),
        (memoryview(bytearray(8)).cast("d"), Dtype.float64, 1),
        (memoryview(bytearray(8)).cast("?"), Dtype.bool_, 8),
    ],
    ids=["bytearray", "array-l", "array-f", "memoryview-d", "memoryview-?"],
)
def test_buffers_are_used_in_place(memory: Array, dtype: Dtype, count: int) -> None:
    buffer = as_output(memory)
    assert (buffer.dtype, buffer.count) == (dtype, count)
    assert buffer.array is memory
    assert overlaps(buffer, as_input(memory))


def test_strided_memoryviews_are_written_back() -> None:
    memory = bytearray(6)
    buffer = as_output(memoryview(memory)[::2])
    _fill(buffer, np.array([1, 2, 3], np.uint8))
    assert buffer.finish is not None
    buffer.finish()
    assert list(memory) == [1, 0, 2, 0, 3, 0]


def test_dlpack_on_the_cpu_is_used_in_place() -> None:
    values = np.zeros(3, np.float32)
    exporter = Exporter(values)
    buffer = as_input(exporter)
    assert buffer.address == values.ctypes.data
    assert buffer.array is exporter
    assert as_output(exporter).address == values.ctypes.data


def test_dlpack_on_another_device_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"Exporter\) is on device cuda:1"):
        as_input(Exporter(np.zeros(1), (2, 1)))


def test_inputs_may_be_read_only_and_scalars() -> None:
    assert as_input(b"abc").count == 3
    assert as_input(np.float32(3)).shape == ()
    assert as_input(np.broadcast_to(np.float32(3), (4,))).count == 4


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1, 2], "gradient is a list of 2, not an array"),
        (None, "gradient is None, not an array"),
        (3, "gradient is int, not an array"),
        (object(), "gradient is object, not an array"),
        ("text", "gradient is str, not an array"),
    ],
    ids=["list", "None", "int", "object", "str"],
)
def test_what_is_no_array_is_refused(x: object, message: str) -> None:
    for take in (as_input, as_output):
        with pytest.raises(UsageError) as caught:
            take(x, "gradient")
        assert caught.value.what == message
        assert caught.value.details[0].startswith("accepted: NumPy arrays")


@pytest.mark.parametrize("dtype", [">f8", ">u2", "M8[s]", "O", "U3", "i4,f4", "g"])
def test_numpy_dtypes_without_kernels_are_refused(dtype: str) -> None:
    words = "byte order" if dtype.startswith(">") else "cannot be communicated"
    with pytest.raises(UsageError, match=words):
        as_input(np.zeros(2, dtype))


def test_buffers_of_other_formats_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be communicated"):
        as_input(memoryview(b"ab").cast("c"))


def test_outputs_must_be_writable_places() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for x in (frozen, b"abc", memoryview(b"abc")):
        with pytest.raises(UsageError, match="read-only"):
            as_output(x)
    with pytest.raises(UsageError, match=r"NumPy scalar \(float32\)"):
        as_output(np.float32(3))
    repeated = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))
    with pytest.raises(UsageError, match="share one place in memory"):
        as_output(repeated)


def test_overlap_is_seen_to_the_byte() -> None:
    values = np.zeros(8, np.uint8)
    assert overlaps(as_input(values[:4]), as_input(values[3:]))
    assert not overlaps(as_input(values[:4]), as_input(values[4:]))
    assert not overlaps(as_input(values[:0]), as_input(values))


def test_helpers_stay_in_numpy() -> None:
    values = np.arange(6, dtype=np.int16).reshape(3, 2)
    made = empty_like(values, (4, 2))
    assert (made.shape, made.dtype) == ((4, 2), values.dtype)
    assert empty_like(values, [3], Dtype.bfloat16).dtype == ml_dtypes.bfloat16
    assert empty_like(bytearray(3), (2,)).dtype == np.uint8
    copied = copy_of(values.T)
    assert copied.tolist() == values.T.tolist()
    assert copied.flags.c_contiguous
    assert (numel(values), numel(bytearray(3)), numel(np.float32(1))) == (6, 3, 1)


def test_cut_gives_views_along_the_first_dimension() -> None:
    values = np.arange(6).reshape(3, 2)
    first, none, second = cut(values, [1, 0, 2])
    assert (first.shape, none.shape, second.shape) == ((1, 2), (0, 2), (2, 2))
    second[0, 0] = 99
    assert values[1, 0] == 99
    with pytest.raises(UsageError, match=r"\[1, 1\] of input do not add up .* 3"):
        cut(values, [1, 1], "input")
    with pytest.raises(UsageError, match="do not add up"):
        cut(values, [4, -1])
    with pytest.raises(UsageError, match="no dimensions"):
        cut(np.array(1), [1])
