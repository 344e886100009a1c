"""Facts of arrays of any library, on any device, without reading their data.

Only attributes are used (shape, dtype, device, strides): no byte is read or copied. So it works for arrays
that our engine would refuse. An unknown dtype goes by its own name.

The order of memory is a fact here, since a backend may move raw memory: a transposed matrix on one
rank would arrive as another matrix. Gaps between elements are not: who cannot take them says so.
"""

from __future__ import annotations

from typing import Any

from distdbg.ops.call import Call
from distdbg.ops.dtypes import Dtype

_CODES = {dtype.label: int(dtype) for dtype in Dtype}
_DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda"}


class ArrayFacts:
    """One array as planning and call_facts.py see it, which is the part of a View they need."""

    __slots__ = ("device", "dtype", "label", "nbytes", "order", "shape")

    def __init__(self, array: Any) -> None:
        self.shape = tuple(int(extent) for extent in getattr(array, "shape", ()))
        self.label = _dtype_label(array)
        #: Our number of the dtype; -1 when it has none.
        self.dtype = _CODES.get(self.label, -1)
        self.device = _device(array)
        self.order = _order(array, self.shape)
        count = 1
        for extent in self.shape:
            count *= extent
        self.nbytes = count * (Dtype(self.dtype).itemsize if self.dtype >= 0 else 1)


def key_of(call: Call) -> tuple[Any, ...]:
    """What the facts of a call depend on, to find them again; cheap, since it is asked for each op."""
    return (
        call.kind,
        call.op,
        call.root,
        call.extra,
        *[_array_key(array) for array in call.inputs],
        None,
        *[_array_key(array) for array in call.outputs],
    )


def _array_key(array: Any) -> tuple[Any, ...]:
    strides = getattr(array, "strides", None)
    if strides is None:
        stride = getattr(array, "stride", None)
        strides = tuple(stride()) if callable(stride) else None
    return (
        getattr(array, "shape", None),
        getattr(array, "dtype", None),
        getattr(array, "device", None),
        strides,
    )


def _dtype_label(array: Any) -> str:
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return type(array).__name__
    name = getattr(dtype, "name", None)  # NumPy's and its kin's; 'bool' has none that differs
    return name if isinstance(name, str) else str(dtype).rpartition(".")[2]


def _device(array: Any) -> str:
    """The type of the device, without its number: ranks use different numbers."""
    device = getattr(array, "device", None)
    kind = getattr(device, "type", None)
    if isinstance(kind, str):
        return kind
    if isinstance(device, str):
        return device.partition(":")[0]
    ask = getattr(array, "__dlpack_device__", None)
    if ask is None:
        return "cpu"
    number = int(ask()[0])
    return _DLPACK_DEVICES.get(number, f"device type {number}")


def _order(array: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions from the slowest to the fastest; None: as usual, the last one is the fastest."""
    stride = getattr(array, "stride", None)
    strides = tuple(stride()) if callable(stride) else getattr(array, "strides", None)
    if not strides or len(strides) != len(shape):
        return None
    # Dimensions of one element lie nowhere in particular.
    long = [axis for axis, extent in enumerate(shape) if extent > 1]
    order = sorted(long, key=lambda axis: -abs(strides[axis]))
    return None if order == long else tuple(order)
