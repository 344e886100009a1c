"""Finds the memory of a user's array, on which native code works.

`as_input` and `as_output` take NumPy arrays (ml_dtypes' too), PyTorch CPU tensors, and whatever
speaks DLPack on the CPU or the buffer protocol, and give a `Buffer`. Anything else, and anything
that cannot be written although it has to be, is a UsageError before a byte is sent. Memory is used
in place. Only what is not contiguous (or is a lazily conjugated tensor) goes through a contiguous
stand-in; then `Buffer.finish` carries the result back and must be called after the op.

`input_of` and `output_of` also take arrays on a GPU: for what looks at an array and leaves its memory alone.

A Buffer is native's View itself, so making one is a single native call:
    dtype     int code (see Dtype)          nbytes, count    of the memory
    shape     tuple of the array            array            what the caller passed
    finish    None, or to be called without arguments after a successful op
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distdbg.errors import UsageError, WrongTypeError
from distdbg.native import View
from distdbg.ops.dtypes import CARRIERS, FROM_NUMPY, Dtype
from distdbg.runtime.arrays import device_arrays, torch_arrays
from distdbg.runtime.recorder import torch_profiler

# An array of any library; there is no common type to name.
Array = Any

Buffer = View

_ndarray = np.ndarray
# What NumPy exports itself; the dtypes with carriers need a detour.
_DIRECT = {dtype: code for dtype, code in FROM_NUMPY.items() if code not in CARRIERS}


def as_input(x: Array, name: str = "tensor") -> Buffer:
    """The memory of x for reading; `name` is what messages call x."""
    if type(x) is _ndarray:
        dtype = _DIRECT.get(x.dtype)
        if dtype is not None:
            try:
                return View(x, False, dtype)
            except (BufferError, ValueError):
                pass  # not contiguous
    return _resolve(x, name, writable=False)


def as_output(x: Array, name: str = "tensor") -> Buffer:
    """The memory of x for writing (and reading); `name` is what messages call x."""
    if type(x) is _ndarray:
        dtype = _DIRECT.get(x.dtype)
        if dtype is not None:
            try:
                return View(x, True, dtype)
            except (BufferError, ValueError):
                pass  # not contiguous, or read-only
    return _resolve(x, name, writable=True)


def input_of(x: Array, name: str = "tensor") -> Buffer:
    """What x is, wherever it lies: as_input on the host; on a GPU only to be looked at."""
    if type(x) is not _ndarray and device_arrays.is_on_device(x):
        return device_arrays.as_view(x, name, writable=False)
    return as_input(x, name)


def output_of(x: Array, name: str = "tensor") -> Buffer:
    """The same of an array that is written."""
    if type(x) is not _ndarray and device_arrays.is_on_device(x):
        return device_arrays.as_view(x, name, writable=True)
    return as_output(x, name)


def _resolve(x: Array, name: str, writable: bool) -> Buffer:
    if isinstance(x, np.ndarray):
        return _from_numpy(x, x, name, writable)
    if torch_arrays.is_tensor(x):
        return _from_tensor(x, name, writable)
    if isinstance(x, np.generic) and writable:
        raise WrongTypeError(
            f"{name} is a NumPy scalar ({type(x).__name__}), which cannot be written",
            hint="pass an array of one element, such as np.array(value)",
        )
    return _from_numpy(_to_numpy(x, name), x, name, writable)


def _from_numpy(x: np.ndarray[Any, Any], owner: Array, name: str, writable: bool) -> Buffer:
    dtype = _numpy_dtype(x, name)
    finish: Callable[[], None] | None = None
    memory = x
    flags = x.flags
    if writable and not flags.writeable:
        raise UsageError(
            f"{name} is read-only, and the op writes into it; nothing was sent",
            hint="pass a copy",
        )
    if not flags.c_contiguous:
        if writable and _has_shared_elements(x):
            raise _shared_elements(name)
        memory = x.copy(order="C")
        if writable:
            finish = _array_copier(x, memory)
    carrier = CARRIERS.get(dtype)
    buffer = View(memory if carrier is None else memory.view(carrier), writable, dtype)
    buffer.array = owner
    buffer.finish = finish
    buffer.is_stand_in = memory is not x
    return buffer


def _from_tensor(x: Array, name: str, writable: bool) -> Buffer:
    if torch_profiler.profiler is None:
        torch_profiler.look_for_torch()
    simple = torch_arrays.simple_memory(x)
    if simple is not None:
        try:
            buffer = View(simple[0], writable, simple[1])
        except (BufferError, ValueError):
            pass  # not contiguous
        else:
            buffer.array = x
            return buffer
    dtype = torch_arrays.dtype_of(x, name)
    finish: Callable[[], None] | None = None
    memory = x
    if not torch_arrays.is_plain(x):
        if writable and torch_arrays.has_shared_elements(x):
            raise _shared_elements(name)
        memory = torch_arrays.plain_copy(x)
        if writable:
            finish = torch_arrays.copier(x, memory)
    buffer = View(torch_arrays.as_numpy(memory, dtype), writable, dtype)
    buffer.array = x
    buffer.finish = finish
    buffer.is_stand_in = memory is not x
    return buffer


def _numpy_dtype(x: np.ndarray[Any, Any], name: str) -> Dtype:
    if isinstance(x, np.ma.MaskedArray):
        raise UsageError(
            f"{name} is a masked array, and its mask would be lost",
            hint="pass array.filled(value), or communicate data and mask",
        )
    dtype = FROM_NUMPY.get(x.dtype)
    if dtype is not None:
        return dtype
    if x.dtype.newbyteorder("=") in FROM_NUMPY:
        raise UsageError(
            f"{name} has dtype {x.dtype.str}, which is not in this machine's byte order",
            hint="pass array.astype(array.dtype.newbyteorder('='))",
        )
    known = ", ".join(known.label for known in Dtype)
    raise UsageError(
        f"{name} is an array of dtype {x.dtype}, which cannot be communicated",
        details=[f"known dtypes: {known}"],
    )


def _has_shared_elements(x: np.ndarray[Any, Any]) -> bool:
    return any(
        stride == 0 and extent > 1 for stride, extent in zip(x.strides, x.shape, strict=True)
    )


def _shared_elements(name: str) -> UsageError:
    return UsageError(
        f"several elements of {name} share one place in memory, and the op writes into it",
        hint="pass a copy, such as tensor.contiguous() or array.copy()",
    )


def _array_copier(x: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> Callable[[], None]:
    def copy_back() -> None:
        x[...] = source

    return copy_back


def _to_numpy(x: Array, name: str) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of an object of another library, or UsageError."""
    if isinstance(x, np.generic):
        return np.asarray(x)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _from_dlpack(x, name)
    try:
        return np.asarray(memoryview(x))
    except (TypeError, BufferError, ValueError):
        raise WrongTypeError(
            f"{name} is {_describe(x)}, not an array",
            details=[_ACCEPTED],
        ) from None


_ACCEPTED = (
    "accepted: NumPy arrays, PyTorch CPU tensors, and objects with DLPack on the CPU or with the "
    "buffer protocol"
)

# The numbers of DLPack's DLDeviceType that a user can meet.
_CPU_DEVICES = {1}
_DEVICE_NAMES = {2: "cuda", 3: "cuda host memory", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm"}


def _from_dlpack(x: Array, name: str) -> np.ndarray[Any, Any]:
    kind, index = x.__dlpack_device__()
    if int(kind) not in _CPU_DEVICES:
        device = _DEVICE_NAMES.get(int(kind), f"DLPack device type {int(kind)}")
        raise UsageError(
            f"{name} ({type(x).__name__}) is on device {device}:{index}; "
            "the arrays of this group are on the CPU",
            hint="copy it to the CPU first, or use a group whose backend serves that device",
        )
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{name} ({type(x).__name__}) cannot be read through DLPack: {error}"
        ) from error


def _describe(x: object) -> str:
    if x is None:
        return "None"
    if isinstance(x, list | tuple):
        return f"a {type(x).__name__} of {len(x)}"
    kind = type(x)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def overlaps(a: Buffer, b: Buffer) -> bool:
    """Whether the two share at least one byte."""
    return bool(
        a.nbytes
        and b.nbytes
        and a.address < b.address + b.nbytes
        and b.address < a.address + a.nbytes
    )


def numel(x: Array) -> int:
    """How many elements x has, without looking at its memory."""
    if type(x) is _ndarray or isinstance(x, np.ndarray | np.generic):
        return x.size
    if torch_arrays.is_tensor(x):
        return int(x.numel())
    if device_arrays.is_on_device(x):
        return int(x.size)
    return _to_numpy(x, "tensor").size


def empty_like(x: Array, shape: Sequence[int], dtype: Dtype | None = None) -> Array:
    """A new array of x's library (NumPy's for objects of others), of x's dtype unless given."""
    if torch_arrays.is_tensor(x):
        return torch_arrays.empty(x, shape, dtype)
    if device_arrays.is_on_device(x):
        return device_arrays.empty(x, shape, dtype)
    if dtype is not None:
        return np.empty(tuple(shape), dtype.to_numpy())
    array = x if isinstance(x, np.ndarray) else _to_numpy(x, "tensor")
    return np.empty(tuple(shape), array.dtype)


def as_array(x: Array, name: str = "tensor") -> Array:
    """x where it is NumPy's or torch's, else a NumPy array over its memory; UsageError for all else."""
    is_array = isinstance(x, np.ndarray) or torch_arrays.is_tensor(x)
    return x if is_array or device_arrays.is_on_device(x) else _to_numpy(x, name)


def zeros_like(x: Array) -> Array:
    """A new array of x's library, shape and dtype, of zeros."""
    made = empty_like(x, x.shape)
    made[...] = 0
    return made


def stack_parts(x: Array, count: int, dim: int) -> Array:
    """A new array: `count` equal parts of x along a dimension, one after the other in memory."""
    if torch_arrays.is_tensor(x):
        return torch_arrays.stack_parts(x, count, dim)
    return np.stack(np.split(x, count, axis=dim))


def join_along(parts: Array, dim: int) -> Array:
    """A new array: those that are stacked in `parts`, side by side along one of their dimensions."""
    if torch_arrays.is_tensor(parts):
        return torch_arrays.join_along(parts, dim)
    return np.concatenate(list(parts), axis=dim)


def copy_of(x: Array) -> Array:
    """A contiguous copy of x in x's library (NumPy's for objects of others)."""
    if torch_arrays.is_tensor(x):
        return torch_arrays.plain_copy(x)
    if device_arrays.is_on_device(x):
        return x.copy(order="C")
    return (x if isinstance(x, np.ndarray) else _to_numpy(x, "tensor")).copy(order="C")


def cut(x: Array, splits: Sequence[int], name: str = "tensor") -> list[Array]:
    """Views of x along its first dimension, of the given lengths in order."""
    array = as_array(x, name)
    if len(array.shape) == 0:
        raise UsageError(f"{name} has no dimensions and cannot be split")
    if sum(splits) != array.shape[0] or min(splits, default=0) < 0:
        raise UsageError(
            f"the split sizes {list(splits)} of {name} do not add up to its first dimension, "
            f"{array.shape[0]}"
        )
    views = []
    begin = 0
    for length in splits:
        views.append(array[begin : begin + length])
        begin += length
    return views
