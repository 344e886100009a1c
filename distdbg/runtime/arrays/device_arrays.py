"""Arrays in the memory of a CUDA device, as planning and checking see them; no library is imported.

CuPy's arrays, whatever else has their methods, and CUDA tensors. A `DeviceBuffer` has the
parts of a View (buffers.py) that concern what an array is; native code, which works on host memory, never
gets one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, cast

import numpy as np

from distdbg.errors import UsageError, WrongTypeError
from distdbg.native import View
from distdbg.ops.dtypes import FROM_NUMPY, Dtype, from_torch
from distdbg.runtime.arrays import torch_arrays

#: An array of a library that is not ours to import.
Array = Any

#: DLPack's numbers of CUDA devices and of the memory that CUDA moves between them and the host.
_CUDA: Final = (2, 13)


class DeviceBuffer:
    """The memory of one array on a device."""

    __slots__ = (
        "address", "array", "count", "device", "dtype", "finish", "is_stand_in", "nbytes", "shape",
    )  # fmt: skip

    def __init__(self, array: Array, address: int, dtype: Dtype, device: int) -> None:
        #: What the caller passed.
        self.array = array
        self.shape = tuple(int(extent) for extent in array.shape)
        self.dtype = int(dtype)
        self.count = 1
        for extent in self.shape:
            self.count *= extent
        self.nbytes = self.count * dtype.itemsize
        self.address = address
        #: The number of the device in this process.
        self.device = device
        #: To be called after a successful op, in the op's stream; None: nothing is left to do.
        self.finish: Callable[[], None] | None = None
        #: Whether the memory is a contiguous copy of the array's.
        self.is_stand_in = False


def is_on_device(x: object) -> bool:
    """Whether x is an array in the memory of a CUDA device."""
    if isinstance(x, np.ndarray) and type(x) is np.ndarray:
        return False
    if torch_arrays.is_tensor(x):
        return bool(getattr(x, "is_cuda", False))
    if not hasattr(type(x), "__cuda_array_interface__"):
        return False
    ask = getattr(x, "__dlpack_device__", None)
    return ask is None or int(ask()[0]) in _CUDA


def as_view(x: Array, name: str, writable: bool) -> View:
    """The DeviceBuffer of x, typed as what planning takes."""
    return cast(View, device_buffer(x, name, writable))


def device_buffer(x: Array, name: str = "tensor", writable: bool = False) -> DeviceBuffer:
    """The memory of x; UsageError where it cannot be used."""
    if torch_arrays.is_tensor(x):
        return _of_tensor(x, name)
    check_taken(x, name)
    dtype = FROM_NUMPY.get(np.dtype(x.dtype))
    if dtype is None:
        raise _unknown_dtype(name, x)
    if x.flags.c_contiguous:
        return DeviceBuffer(x, _address(x), dtype, device_index(x))
    if writable and any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True)):
        raise UsageError(
            f"several elements of {name} share one place in memory, and the op writes into it",
            hint="pass a copy, such as array.copy()",
        )
    memory = copy_of(x)
    buffer = DeviceBuffer(memory, _address(memory), dtype, device_index(x))
    buffer.is_stand_in = True
    if writable:
        buffer.finish = _copier(x, memory)
    return buffer


def check_taken(x: Array, name: str = "tensor") -> None:
    """UsageError for an array on a GPU that has not the methods of CuPy's."""
    if (
        hasattr(getattr(x, "flags", None), "c_contiguous")
        and hasattr(x, "get")
        and hasattr(x, "set")
    ):
        return
    kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
    raise WrongTypeError(
        f"{name} is a {kind} on a GPU; of arrays there CuPy's and CUDA tensors are taken",
        hint="cupy.asarray(array) shares its memory",
    )


def empty(x: Array, shape: Sequence[int], dtype: Dtype | None) -> Array:
    """A new array beside x, of its library; same dtype unless given."""
    with on_device_of(x):
        return library_of(x).empty(tuple(shape), x.dtype if dtype is None else dtype.to_numpy())


def copy_of(x: Array) -> Array:
    """A contiguous copy of x, on its device."""
    with on_device_of(x):
        return x.copy(order="C")


def on_device_of(x: Array) -> AbstractContextManager[Any]:
    """In this block the thread uses the device of x.

    Where CuPy allocates, copies and waits is up to the thread, not to the array; PyTorch looks at the tensor.
    """
    cuda = None if torch_arrays.is_tensor(x) else getattr(library_of(x), "cuda", None)
    block: AbstractContextManager[Any] = (
        nullcontext() if cuda is None else cuda.Device(device_index(x))
    )
    return block


def library_of(x: Array) -> Any:
    """The module that an array is of: cupy, also where the program has a class of its own made of CuPy's."""
    cupy = sys.modules.get("cupy")
    kind = getattr(cupy, "ndarray", None)
    if isinstance(kind, type) and isinstance(x, kind):
        return cupy
    return sys.modules[type(x).__module__.partition(".")[0]]


def device_index(x: Array) -> int:
    """The number of the device that x is on."""
    device = getattr(x, "device", None)
    for name in ("id", "index"):
        number = getattr(device, name, None)
        if isinstance(number, int):
            return number
    ask = getattr(x, "__dlpack_device__", None)
    return 0 if ask is None else int(ask()[1])


def device_text(x: Array) -> str:
    """'cuda:0', or what an array on the host says of itself."""
    if is_on_device(x):
        return f"cuda:{device_index(x)}"
    return str(getattr(x, "device", "cpu"))


def _of_tensor(x: Array, name: str) -> DeviceBuffer:
    dtype = from_torch(x.dtype)
    if dtype is None:
        raise _unknown_dtype(name, x)
    if not torch_arrays.is_plain(x):
        raise UsageError(
            f"{name} is a tensor on {x.device} that is not contiguous, or conjugated or negated lazily",
            hint="pass tensor.contiguous(), and resolve_conj() or resolve_neg() before",
        )
    return DeviceBuffer(x, int(x.data_ptr()), dtype, device_index(x))


def _address(x: Array) -> int:
    return int(x.__cuda_array_interface__["data"][0])


def _unknown_dtype(name: str, x: Array) -> UsageError:
    known = ", ".join(known.label for known in Dtype)
    return UsageError(
        f"{name} is an array of dtype {x.dtype}, which cannot be communicated",
        details=[f"known dtypes: {known}"],
    )


def _copier(x: Array, source: Array) -> Callable[[], None]:
    def copy_back() -> None:
        with on_device_of(x):
            x[...] = source

    return copy_back
