"""Which way an op on GPU arrays takes. All ranks of a legal call find the same one, and ask nobody.

WHOLE   the arrays are copied to the host, the host's engine does the op, and its results are copied back
CHUNKS  the same piece by piece: the copies of one piece run while another is reduced or sent
IPC     ranks of one host open each other's memory, and the GPU does it
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from distdbg.ops.call import Call, Kind


class GpuRoute(IntEnum):
    """From the one that always works to the fastest."""

    WHOLE = 0
    CHUNKS = 1
    IPC = 2


#: From how many bytes on, of all blocks of one rank together, CHUNKS and IPC are taken. Estimated from the
#: latency of a copy, a kernel and a exchange between the ranks; NOT MEASURED on any GPU.
FROM_NBYTES: Final[dict[Kind, tuple[int, int]]] = {
    Kind.BROADCAST: (8 << 20, 64 << 10),
    Kind.ALL_REDUCE: (8 << 20, 64 << 10),
    Kind.REDUCE: (8 << 20, 64 << 10),
    Kind.ALL_GATHER: (16 << 20, 128 << 10),
    Kind.GATHER: (16 << 20, 128 << 10),
    Kind.SCATTER: (16 << 20, 128 << 10),
    Kind.REDUCE_SCATTER: (16 << 20, 128 << 10),
}

#: From how many bytes on a message is offered to be taken from the device. As above, NOT MEASURED.
MESSAGE_FROM_NBYTES: Final = 64 << 10

#: More ranks than that do not open each other's memory: their kernels would have too many arguments.
MOST_RANKS: Final = 16

#: Its blocks may have other sizes on each rank, none of which could choose for all: it goes the best way.
_OF_ANY_SIZE: Final = Kind.ALL_TO_ALL
#: Kinds whose blocks have a size of one rank's array.
_TIMES_RANKS: Final = (Kind.GATHER, Kind.SCATTER)


def choose(call: Call, best: GpuRoute, size: int, *, is_small_too: bool = False) -> GpuRoute:
    """The way of a call in a group whose ranks have `best`. Messages choose for themselves."""
    if best is GpuRoute.WHOLE or call.kind >= Kind.BARRIER:
        return GpuRoute.WHOLE
    if call.kind is _OF_ANY_SIZE:
        return best
    nbytes = _nbytes(call, size)
    chunks_from, ipc_from = (1, 1) if is_small_too else FROM_NBYTES[call.kind]
    if best is GpuRoute.IPC and nbytes >= ipc_from:
        return GpuRoute.IPC
    return GpuRoute.CHUNKS if nbytes >= chunks_from else GpuRoute.WHOLE


def _nbytes(call: Call, size: int) -> int:
    """What all ranks of a legal call have alike."""
    if call.kind is Kind.ALL_GATHER:
        return _sum(call.outputs)
    if call.kind is Kind.REDUCE_SCATTER:
        return _sum(call.inputs)
    if call.kind in _TIMES_RANKS:
        own = call.inputs if call.kind is Kind.GATHER else call.outputs
        return int(own[0].nbytes) * size
    return int((call.inputs or call.outputs)[0].nbytes)


def _sum(arrays: Any) -> int:
    return sum(int(array.nbytes) for array in arrays)
