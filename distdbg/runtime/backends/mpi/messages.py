"""Starts MPI's non-blocking sends and receives for our Calls."""

from __future__ import annotations

from typing import Any

from distdbg.errors import DistBackendError, UsageError
from distdbg.ops.call import Call, Kind
from distdbg.runtime.arrays.buffers import output_of
from distdbg.runtime.backends.mpi import wide
from distdbg.runtime.backends.mpi.collectives import MpiGroup, give, take
from distdbg.runtime.backends.mpi.memory import MpiBuffer, MpiRequests, bytes_of


def check_tag(call: Call, limit: int) -> None:
    """Raise when MPI has no such tag; nothing was sent."""
    if call.tag > limit:
        raise UsageError(
            f"{call.name or call.kind.label}: tag {call.tag} is above {limit}, the largest of this MPI"
        )


def start(group: MpiGroup, call: Call) -> MpiRequests:
    """Start the message; raises MPI's Exception."""
    started = MpiRequests([])
    if call.kind is Kind.SEND:
        [piece] = take(call.inputs, started)
        request = group.comm.Isend(_spec(group, piece, started), dest=call.peer, tag=call.tag)
    else:
        [piece] = give(call.outputs, started)
        spec = _spec(group, piece, started)
        if group.any_source is not None:
            request = group.any_source.post(spec, call.peer, call.tag)
        else:
            source = call.peer if call.peer >= 0 else group.library.MPI.ANY_SOURCE
            request = group.comm.Irecv(spec, source=source, tag=call.tag)
    started.requests.append(request)
    return started


def check_received(group: MpiGroup, call: Call, status: Any) -> None:
    """Raise when a shorter message has come than the array has room for."""
    buffer = output_of(call.outputs[0])
    expected = MpiBuffer.of(buffer).count
    if group.library.is_too_many(expected):
        return  # counted in whole blocks
    count = status.Get_count(group.library.datatypes.of(buffer.dtype))
    if count != expected:
        raise DistBackendError(
            f"recv: a message of {count} elements has come, the array has {expected}",
            details=[f"it came from group rank {status.Get_source()} with tag {call.tag}"],
        )


def _spec(group: MpiGroup, piece: MpiBuffer, started: MpiRequests) -> list[Any]:
    library = group.library
    if library.is_too_many(piece.count):
        block = wide.block_type(library, piece)
        started.finish.append(block.Free)
        return [library.MPI.BOTTOM, 1, block]
    return [bytes_of(library.MPI, piece), piece.count, library.datatypes.of(piece.dtype)]
