"""Arrays as UCC takes them: one piece of memory, on the host or on a GPU.

Several arrays are brought into one and back: on the host byte by byte, on a GPU by the arrays' own library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.arrays import device_arrays
from distdbg.runtime.arrays.buffers import as_input, as_output
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.backends.ucc.library import CUDA, HOST

#: An array of any library.
Array = Any


@dataclass(slots=True)
class HeldMemory:
    """What has to live as long as a collective, and what is left to do when it has ended."""

    keeps: list[Any] = field(default_factory=list)
    finish: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class UccBuffer:
    """Contiguous memory of elements of one dtype."""

    address: int
    counts: tuple[int, ...]
    """Elements of each array."""
    dtype: Dtype
    memory_type: int

    @property
    def count(self) -> int:
        """Elements in all."""
        return sum(self.counts)


def take(arrays: Sequence[Array], held: HeldMemory) -> UccBuffer:
    """The memory of inputs."""
    return _piece(arrays, held, is_written=False)


def give(arrays: Sequence[Array], held: HeldMemory) -> UccBuffer:
    """The memory of outputs; what has to be brought back is, when the collective has ended."""
    return _piece(arrays, held, is_written=True)


def check_places(what: str, arrays: Sequence[Array]) -> None:
    """UsageError where some arrays are on the host and some on a GPU."""
    if len({device_arrays.is_on_device(array) for array in arrays}) > 1:
        raise UsageError(f"{what}: some of its arrays are on the host and some on a GPU")


def _piece(arrays: Sequence[Array], held: HeldMemory, is_written: bool) -> UccBuffer:
    on_device = device_arrays.is_on_device(arrays[0])
    buffers: list[Any] = []
    for array in arrays:
        if on_device:
            buffers.append(device_arrays.device_buffer(array, writable=is_written))
        else:
            buffers.append(as_output(array) if is_written else as_input(array))
    held.keeps.extend(buffers)
    first, counts = buffers[0], tuple(buffer.count for buffer in buffers)
    dtype, kind = Dtype(first.dtype), CUDA if on_device else HOST
    if len(buffers) > 1:
        join = _join_on_gpu if on_device else _join_on_host
        address = join(buffers, counts, dtype, held, is_written)
    else:
        address = first.address
    held.finish.extend(buffer.finish for buffer in buffers if buffer.finish is not None)
    return UccBuffer(address, counts, dtype, kind)


def _join_on_host(
    buffers: Sequence[Any], counts: Sequence[int], dtype: Dtype, held: HeldMemory, is_written: bool
) -> int:
    whole = np.empty(max(sum(counts) * dtype.itemsize, 1), np.uint8)
    held.keeps.append(whole)
    begins = accumulate((buffer.nbytes for buffer in buffers), initial=whole.ctypes.data)
    for buffer, begin in zip(buffers, begins, strict=False):
        if is_written:
            held.finish.append(partial(_move, buffer.address, begin, buffer.nbytes))
        else:
            _move(begin, buffer.address, buffer.nbytes)
    return int(whole.ctypes.data)


def _join_on_gpu(
    buffers: Sequence[Any], counts: Sequence[int], dtype: Dtype, held: HeldMemory, is_written: bool
) -> int:
    first = buffers[0].array
    if is_tensor(first):
        whole = first.new_empty((sum(counts),))
    else:
        whole = device_arrays.empty(first, (sum(counts),), None)
    held.keeps.append(whole)
    for buffer, end in zip(buffers, accumulate(counts), strict=True):
        part, block = whole[end - buffer.count : end], buffer.array.reshape(-1)
        if is_written:
            held.finish.append(partial(_assign, block, part))
        else:
            _assign(block=part, part=block)
    return device_arrays.device_buffer(whole).address


def _move(target: int, source: int, nbytes: int) -> None:
    ctypes.memmove(target, source, nbytes)


def _assign(block: Array, part: Array) -> None:
    with device_arrays.on_device_of(block):  # perhaps by a thread that has chosen none
        block[...] = part
