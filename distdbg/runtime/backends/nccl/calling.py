"""Calling: queues one op: the calls of steps.py, what is copied before and after, an event at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.arrays.device_arrays import DeviceBuffer, device_buffer
from distdbg.runtime.backends.nccl import reductions, wire
from distdbg.runtime.backends.nccl.ending import CommunicatorEnding
from distdbg.runtime.backends.nccl.library import NcclLibrary
from distdbg.runtime.backends.nccl.pending import NcclPending
from distdbg.runtime.backends.nccl.steps import (
    COPY,
    COPY_AFTER,
    DeviceSides,
    NcclStep,
    is_grouped,
    scratch_nbytes,
    steps_of,
)
from distdbg.runtime.backends.nccl.streams import Streams


class NcclQueue:
    """Of one communicator. One op at a time is queued."""

    def __init__(
        self,
        library: NcclLibrary,
        ending: CommunicatorEnding,
        rank: int,
        size: int,
        peer: int | None = None,
    ) -> None:
        self._library = library
        self._ending = ending
        self._rank = rank
        self._size = size
        #: Of a pair: who the other one is, by the communicator's numbers.
        self._peer = peer
        self._scratch: DeviceBuffer | None = None

    def wire_and_op(self, call: Call, dtype: Dtype, device: int) -> tuple[wire.Wire, int | None]:
        """As what elements travel, and the number of the reduce op; None: one is made for the call."""
        if call.op is None:
            return wire.to_move(dtype, self._library.version), 0
        op = reductions.op_code(call.op, dtype)
        sent = wire.to_reduce(dtype, self._library.version)
        if dtype in wire.FLOAT8:
            wire.check_device(dtype, self._library.capability(device), device)
        return sent, op

    def queue(
        self, pending: NcclPending, streams: Streams, comm: Any, *, is_in_block: bool
    ) -> None:
        """Call NCCL; in a block it gets all of them together later."""
        call, side = pending.call, pending.side
        if call.kind is Kind.BARRIER:
            side.inputs = side.outputs = [self._barrier_memory(streams)]
        first = (side.inputs or side.outputs)[0]
        dtype = Dtype(first.dtype)
        sent, known = self.wire_and_op(call, dtype, first.device)
        with streams.on_device():
            streams.wait_for(side.ready)
            if side.is_recorded:
                side.begin = streams.event(is_timed=True)
            op = self._make_premul_sum(call, dtype, sent.code, comm) if known is None else known
            try:
                peer = call.peer if self._peer is None else self._peer
                sides = DeviceSides(
                    call, self._rank, self._size, side.inputs, side.outputs, sent, op, peer
                )
                nbytes = scratch_nbytes(sides)
                if nbytes:
                    pending.scratch = streams.memory(nbytes)
                    sides = sides._replace(scratch=pending.scratch.address)
                steps = steps_of(sides)
                pending.copies = [step.args for step in steps if step.method == COPY_AFTER]
                self._call_nccl(steps, streams, comm, is_in_block)
            finally:
                if known is None:
                    self._library.extra.destroy_op(op, int(comm.comm))

    def finish(self, pending: NcclPending, streams: Streams) -> None:
        """All of it is queued: bring back what was not in one piece, and mark the end."""
        with streams.on_device():
            for copied in pending.copies:
                streams.copy(*copied)
            for buffer in pending.side.outputs:
                if buffer.finish is not None:
                    streams.carry_out(buffer.finish)
            pending.ended = streams.event(is_timed=pending.side.begin is not None)
            pending.side.queued(pending.ended)

    def _call_nccl(
        self, steps: Sequence[NcclStep], streams: Streams, comm: Any, is_in_block: bool
    ) -> None:
        needs_group = is_grouped(steps) and not is_in_block
        for step in steps:
            if step.method == COPY:
                streams.copy(*step.args)
        if needs_group:
            self._ending.start_group()
        try:
            for step in steps:
                if step.method not in (COPY, COPY_AFTER):
                    getattr(comm, step.method)(*step.args, streams.stream.ptr)
        finally:
            if needs_group:
                self._ending.end_group()

    def _make_premul_sum(self, call: Call, dtype: Dtype, code: int, comm: Any) -> int:
        assert call.op is not None  # of a reduction
        assert call.op.factor is not None  # check_reduce has looked
        factor = reductions.factor_bytes(call.op.factor, dtype)
        return self._library.extra.make_premul_sum(factor, code, int(comm.comm))

    def _barrier_memory(self, streams: Streams) -> DeviceBuffer:
        if self._scratch is None:
            with streams.on_device():
                self._scratch = device_buffer(self._library.cupy.zeros(1, "uint8"))
        return self._scratch
