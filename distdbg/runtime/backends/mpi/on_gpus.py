"""Arrays on a GPU: given to MPI where it reads the memory of GPUs, else copied through the host.

MPI says of itself whether it does (MPIX_Query_cuda_support, which Open MPI and MPICH have). Each rank decides
for itself: the message is the same. Open MPI means its messages and blocking collectives by that; its
non-blocking collectives, which are the ones called here, read no memory of GPUs.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType
from distdbg.runtime.arrays.buffers import overlaps
from distdbg.runtime.arrays.device_arrays import as_view, is_on_device
from distdbg.runtime.backends.mpi.reductions import name_of


class _Library(Protocol):
    """What is asked of MPI here (library.py)."""

    reads_gpus: bool

    @property
    def name(self) -> str: ...
    @property
    def has_large_counts(self) -> bool: ...
    def is_too_many(self, count: int) -> bool:
        """Whether one request cannot have so many elements."""
        ...


def reads_gpus(mpi: Any) -> bool:
    """Whether the library that was loaded says so."""
    for name in (None, mpi.__file__):  # what it was loaded into, or is linked with
        ask = getattr(ctypes.CDLL(name), "MPIX_Query_cuda_support", None)
        if ask is not None:
            return bool(ask())
    return False


def goes_direct(call: Call, library: _Library) -> bool:
    """Whether MPI takes the arrays of the call where they are."""
    if not library.reads_gpus:
        return False
    if call.kind >= Kind.SEND:
        count = int((call.inputs or call.outputs)[0].size)
        return not library.is_too_many(count) and needs_only_mpi(call)
    # Without large counts all-to-alls go as datatypes over all memory, and parts are cut by address.
    is_able = library.has_large_counts and not library.name.startswith("Open MPI")
    return is_able and needs_only_mpi(call)


def needs_only_mpi(call: Call) -> bool:
    """Whether a call on a GPU needs no copy, no reduction and no division of ours."""
    if len(call.inputs) > 1 or len(call.outputs) > 1:
        return False  # lists are joined by the host
    if not all(is_on_device(array) for array in (*call.inputs, *call.outputs)):
        return False
    buffers = [as_view(array, "tensor", writable=False) for array in (*call.inputs, *call.outputs)]
    if any(buffer.is_stand_in for buffer in buffers):
        return False
    if call.inputs is not call.outputs and len(buffers) == 2 and overlaps(*buffers):
        return False
    if call.op is None:
        return True
    kind = call.op.op
    if kind in (RedOpType.AVG, RedOpType.PREMUL_SUM):
        return False
    return name_of(kind, Dtype(buffers[0].dtype)) is not None
