"""More elements than the library can count: MPI before version 4 counts in int.

Collectives of one array go in parts. Exchanges of blocks become one MPI_Ialltoallw, whose datatypes are whole
blocks at their addresses, so that all its counts are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distdbg.runtime.backends.mpi.memory import MpiBuffer, MpiRequests

if TYPE_CHECKING:
    from distdbg.runtime.backends.mpi.library import MpiLibrary

#: What a block is made of.
_STRIDE = 1 << 20


def block_type(library: MpiLibrary, piece: MpiBuffer, stride: int = _STRIDE) -> Any:
    """A datatype whose one element is the memory of `piece`, from MPI.BOTTOM; free it when it is used."""
    element = library.datatypes.of(piece.dtype)
    if piece.count <= stride:
        whole = element.Create_hindexed([piece.count], [piece.address])
        return whole.Commit()
    many = element.Create_contiguous(stride)
    full, rest = divmod(piece.count, stride)
    whole = library.MPI.Datatype.Create_struct(
        [full, rest],
        [piece.address, piece.address + full * stride * piece.itemsize],
        [many, element],
    )
    many.Free()
    return whole.Commit()


def exchange(
    library: MpiLibrary,
    comm: Any,
    sends: Sequence[MpiBuffer],
    takes: Sequence[MpiBuffer],
    started: MpiRequests,
) -> None:
    """Start to give sends[r] to rank r, and take takes[r] from it."""
    mpi = library.MPI
    made: list[Any] = []

    def spec(pieces: Sequence[MpiBuffer]) -> list[Any]:
        types = []
        for piece in pieces:
            if piece.count:
                made.append(block_type(library, piece))
                types.append(made[-1])
            else:
                types.append(mpi.BYTE)
        counts = [1 if piece.count else 0 for piece in pieces]
        return [mpi.BOTTOM, counts, [0] * len(pieces), types]

    started.requests.append(comm.Ialltoallw(spec(sends), spec(takes)))
    started.finish.extend(datatype.Free for datatype in made)
