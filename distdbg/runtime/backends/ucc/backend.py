"""UccBackend: the collectives of UCC by torch's names.

UCC has no op that can be taken back. What is in flight when the group is broken keeps its memory for good.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import c_char
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from distdbg.control.clock import JobClock
from distdbg.errors import DistBackendError, DistError, OpTimeout
from distdbg.native import View, divide
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, ReduceOp
from distdbg.record.durations import duration_text
from distdbg.runtime.arrays.buffers import copy_of
from distdbg.runtime.arrays.device_wait import wait_for_device
from distdbg.runtime.backends.nap import PollBackoff
from distdbg.runtime.backends.progress import ProgressThread
from distdbg.runtime.backends.ucc import library as ucc
from distdbg.runtime.backends.ucc.library import Arguments, Coll, CollArgsFlag, datatype
from distdbg.runtime.backends.ucc.memory import (
    HeldMemory,
    UccBuffer,
    give,
    take,
)

if TYPE_CHECKING:
    from distdbg.runtime.backends.ucc.team import Team

#: Memory of ops that were given up: UCC may write there at any time.
_kept: Final[list[object]] = []

_BYTES: Final = 5
#: UCC's numbers of dtypes that it reduces.
_DATATYPES: Final = {
    Dtype.int8: 0, Dtype.int16: 1, Dtype.int32: 2, Dtype.int64: 3,
    Dtype.bool_: 5, Dtype.uint8: 5, Dtype.uint16: 6, Dtype.uint32: 7, Dtype.uint64: 8,
    Dtype.float16: 10, Dtype.float32: 11, Dtype.float64: 12, Dtype.bfloat16: 13,
    Dtype.complex64: 15, Dtype.complex128: 16,
}  # fmt: skip
_SUM, _PRODUCT, _MAX, _MIN, _BXOR, _AVG = 0, 1, 2, 3, 9, 12
_OPS: Final = {
    RedOpType.SUM: _SUM, RedOpType.AVG: _AVG, RedOpType.PRODUCT: _PRODUCT, RedOpType.MAX: _MAX,
    RedOpType.MIN: _MIN, RedOpType.BAND: 7, RedOpType.BOR: 8, RedOpType.BXOR: _BXOR,
}  # fmt: skip
#: Ops on 0 or 1 in a byte.
_OPS_OF_BOOL: Final = {
    RedOpType.SUM: _MAX, RedOpType.MAX: _MAX, RedOpType.BOR: _MAX,
    RedOpType.PRODUCT: _MIN, RedOpType.MIN: _MIN, RedOpType.BAND: _MIN, RedOpType.BXOR: _BXOR,
}  # fmt: skip

_progress = ProgressThread("distdbg-ucc-progress")


class UccWork:
    """A collective that UCC has."""

    def __init__(
        self, backend: UccBackend, request: Any, held: HeldMemory, timeout: timedelta
    ) -> None:
        self._backend, self._request, self._held = backend, request, held
        self._limit_s = timeout.total_seconds()
        self._began_ns = backend.clock.now_ns()
        #: Protects the two below, and is held by whoever looks.
        self._lock = threading.Lock()
        self._is_done = False
        self._error: DistError | None = None

    def is_completed(self) -> bool:
        """Look once; whether it has ended, well or badly."""
        with self._lock:
            if not self._is_done:
                self._look()
            return self._is_done

    def done(self) -> bool:
        """The same, for the thread that looks after ops that nobody waits for."""
        return self._backend.is_aborted or self.is_completed()

    def wait(self, timeout: timedelta | None = None) -> None:
        """Look until it has ended; its limit ends the wait, and so does abort()."""
        nap, clock = PollBackoff(), self._backend.clock
        while not self.is_completed():
            clock.check()
            if self._backend.is_aborted:
                raise DistBackendError("UCC cannot end the op: the group was aborted")
            waited_s = (clock.now_ns() - self._began_ns) / 1e9
            if waited_s >= self._limit_s:
                self._backend.abort()
                raise OpTimeout(
                    f"UCC did not carry out the op within {duration_text(waited_s)}",
                    waited_s=waited_s,
                )
            nap()
        if self._error is not None:
            raise self._error

    def _look(self) -> None:
        team = self._backend.team
        try:
            if team.status(self._request) > 0:
                team.progress()
            status = team.status(self._request)
            if status > 0:
                return
            team.end(self._request)
            if status < 0:
                raise team.library.error("the op failed", status)
            for finish in self._held.finish:
                finish()
        except DistError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - CUDA's, of a copy back; UCC has let go of the request
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            self._error = DistBackendError(f"what UCC brought was not copied to its array: {what}")
        self._is_done = True
        self._backend.ended(self)


class UccBackend:
    """One rank of a group."""

    #: Elements are moved, so ranks may differ in the order of memory.
    distdbg_reads_strides = True

    def __init__(self, team: Team, rank: int, size: int, clock: JobClock) -> None:
        self.team, self.rank, self.size, self.clock = team, rank, size, clock
        self.is_aborted = False
        self._in_flight: set[UccWork] = set()

    # ------------------------------------------------------------------------- collectives

    def broadcast(self, arrays: Sequence[Any], opts: Any) -> UccWork | None:
        """From the root to all."""
        held = HeldMemory()
        piece = take(arrays, held) if self.rank == opts.rootRank else give(arrays, held)
        call = Arguments(kind=Coll.BCAST, root=opts.rootRank)
        call.source.even = _even(piece)
        return self._begin(call, held, opts, arrays, piece.count)

    def allreduce(self, arrays: Sequence[Any], opts: Any) -> UccWork | None:
        """In place."""
        held = HeldMemory()
        piece = give(arrays, held)
        call = Arguments(kind=Coll.ALLREDUCE, flags=CollArgsFlag.IN_PLACE)
        call.target.even = self._reduced(call, piece, opts.reduceOp, held, divides=True)
        return self._begin(call, held, opts, arrays, piece.count)

    def reduce(self, arrays: Sequence[Any], opts: Any) -> UccWork | None:
        """In place on the root."""
        held, is_root = HeldMemory(), self.rank == opts.rootRank
        piece = give(arrays, held) if is_root else take(arrays, held)
        call = Arguments(kind=Coll.REDUCE, root=opts.rootRank)
        call.source.even = self._reduced(call, piece, opts.reduceOp, held, divides=is_root)
        if is_root:
            call.flags, call.target.even = CollArgsFlag.IN_PLACE, call.source.even
        return self._begin(call, held, opts, arrays, piece.count)

    def allgather(self, outputs: Any, inputs: Sequence[Any], opts: Any) -> UccWork | None:
        """Blocks that may differ in size."""
        return self._gather_all(outputs[0], inputs[0], opts)

    def _allgather_base(self, output: Any, source: Any, opts: Any) -> UccWork | None:
        """The blocks in one array."""
        return self._gather_all([output], source, opts)

    def _gather_all(self, outputs: Sequence[Any], source: Any, opts: Any) -> UccWork | None:
        held = HeldMemory()
        whole = give(outputs, held)
        mine = _apart(take([source], held), whole, source, held)
        is_even = len(set(whole.counts)) == 1
        call = Arguments(kind=Coll.ALLGATHER if is_even else Coll.ALLGATHERV)
        call.source.even = _even(mine)
        _set(call.target, whole, None if is_even else whole.counts, held)
        return self._begin(call, held, opts, [source, *outputs], whole.count)

    def gather(self, outputs: Any, inputs: Sequence[Any], opts: Any) -> UccWork | None:
        """To the root."""
        held, blocks = HeldMemory(), outputs[0] if outputs else []
        call = Arguments(kind=Coll.GATHERV, root=opts.rootRank)
        whole = give(blocks, held) if blocks else None
        return self._rooted(
            call,
            call.source,
            take(inputs, held),
            call.target,
            whole,
            held,
            opts,
            [*inputs, *blocks],
        )

    def scatter(self, outputs: Sequence[Any], inputs: Any, opts: Any) -> UccWork | None:
        """From the root."""
        held, blocks = HeldMemory(), inputs[0] if inputs else []
        call = Arguments(kind=Coll.SCATTERV, root=opts.rootRank)
        whole = take(blocks, held) if blocks else None
        return self._rooted(
            call,
            call.target,
            give(outputs, held),
            call.source,
            whole,
            held,
            opts,
            [*outputs, *blocks],
        )

    def _rooted(
        self,
        call: Arguments,
        own: ucc.CollBuffer,
        mine: UccBuffer,
        roots: ucc.CollBuffer,
        whole: UccBuffer | None,
        held: HeldMemory,
        opts: Any,
        arrays: Sequence[Any],
    ) -> UccWork | None:
        """Between each rank's block and the blocks of the root, which alone has `whole`."""
        own.even = _even(mine)
        if whole is not None:
            _set(roots, whole, whole.counts, held)
        return self._begin(call, held, opts, arrays, mine.count)

    def reduce_scatter(self, outputs: Sequence[Any], inputs: Any, opts: Any) -> UccWork | None:
        """Blocks that may differ in size."""
        return self._scatter_reduced(outputs[0], inputs[0], opts)

    def _reduce_scatter_base(self, output: Any, source: Any, opts: Any) -> UccWork | None:
        """The blocks in one array."""
        return self._scatter_reduced(output, [source], opts)

    def _scatter_reduced(self, output: Any, inputs: Sequence[Any], opts: Any) -> UccWork | None:
        held = HeldMemory()
        mine = give([output], held)
        whole = take(inputs, held)
        if len(inputs) == 1:
            whole = _apart(whole, mine, inputs[0], held)
        is_even = len(set(whole.counts)) == 1
        call = Arguments(kind=Coll.REDUCE_SCATTER if is_even else Coll.REDUCE_SCATTERV)
        target = self._reduced(call, mine, opts.reduceOp, held, divides=True)
        call.source.even, call.target.even = _even(whole, target.datatype), target
        if not is_even:
            _set(call.target, mine, whole.counts, held, target.datatype)
        return self._begin(call, held, opts, [output, *inputs], whole.count)

    def alltoall(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any) -> UccWork:
        """Blocks of any size."""
        held = HeldMemory()
        source, target = take(inputs, held), give(outputs, held)
        return self._exchange(source, source.counts, target, target.counts, held, opts, inputs)

    def alltoall_base(
        self, output: Any, source: Any, output_splits: Any, input_splits: Any, opts: Any
    ) -> UccWork:
        """One array cut along its first dimension."""
        held = HeldMemory()
        mine, target = take([source], held), give([output], held)
        sends = self._rows(mine, source, input_splits)
        takes = self._rows(target, output, output_splits)
        return self._exchange(mine, sends, target, takes, held, opts, [source])

    def _exchange(
        self,
        source: UccBuffer,
        sends: Sequence[int],
        target: UccBuffer,
        takes: Sequence[int],
        held: HeldMemory,
        opts: Any,
        arrays: Sequence[Any],
    ) -> UccWork:
        call = Arguments(
            kind=Coll.ALLTOALLV,
            flags=CollArgsFlag.CONTIGUOUS_SOURCE | CollArgsFlag.CONTIGUOUS_TARGET,
        )
        _set(call.source, source, sends, held)
        _set(call.target, target, takes, held)
        # How much the others exchange is not known here: so it is begun, whatever the sizes.
        return self._started(call, held, opts, arrays)

    def _rows(self, piece: UccBuffer, array: Any, splits: Sequence[int]) -> list[int]:
        rows = int(array.shape[0])
        row = piece.count // rows if rows else 0
        return [split * row for split in splits or [rows // self.size] * self.size]

    def barrier(self, opts: Any) -> UccWork:
        """All have come."""
        return self._started(Arguments(kind=Coll.BARRIER), HeldMemory(), opts, [])

    # ------------------------------------------------------------------------------ the end

    def abort(self) -> None:
        """End all waits on this rank. UCC has no such thing: other ranks are told by the check."""
        self.is_aborted = True
        _kept.extend(self._in_flight)

    def shutdown(self) -> None:
        """Let what is in flight end (each op has a limit), then leave the team."""
        for work in list(self._in_flight):
            if not self.is_aborted:
                work.wait()
        if self.is_aborted:
            _kept.append(self.team)
        else:
            self.team.leave()

    def ended(self, work: UccWork) -> None:
        """Nobody has to look after it any more."""
        self._in_flight.discard(work)

    # ----------------------------------------------------------------------------- one call

    def _begin(
        self, call: Arguments, held: HeldMemory, opts: Any, arrays: Sequence[Any], count: int
    ) -> UccWork | None:
        """Start it, where there is something to move, on which all ranks agree."""
        return self._started(call, held, opts, arrays) if count else None

    def _started(
        self, call: Arguments, held: HeldMemory, opts: Any, arrays: Sequence[Any]
    ) -> UccWork:
        if self.is_aborted:
            raise DistBackendError("the group was aborted")
        call.mask = Arguments.FLAGS
        call.flags |= CollArgsFlag.COUNT_64BIT | CollArgsFlag.DISPLACEMENTS_64BIT
        held.keeps.append(call)
        wait_for_device(arrays)
        if held.finish:
            held.finish.append(partial(wait_for_device, arrays))
        work = UccWork(self, self.team.begin(call), held, opts.timeout)
        self._in_flight.add(work)
        _progress.add(work)
        return work

    def _reduced(
        self, call: Arguments, piece: UccBuffer, op: ReduceOp, held: HeldMemory, divides: bool
    ) -> ucc.EvenBuffer:
        """Set the op, and how its memory is read."""
        kind, dtype = op.op, piece.dtype
        call.op = _OPS_OF_BOOL[kind] if dtype is Dtype.bool_ else _OPS[kind]
        if kind is RedOpType.AVG and piece.memory_type == ucc.HOST:
            call.op = _SUM  # and divided here, since UCC has no average of integers
            if divides:
                memory = (c_char * (piece.count * dtype.itemsize)).from_address(piece.address)
                view = View(np.frombuffer(memory, np.uint8), True)
                held.finish.insert(0, partial(divide, int(dtype), view, self.size))
        return _even(piece, datatype(_DATATYPES[dtype]))


def _apart(source: UccBuffer, target: UccBuffer, array: Any, held: HeldMemory) -> UccBuffer:
    """The source, or a copy of it where it lies in the target, as a rank's own block may."""
    begin, nbytes = target.address, target.count * target.dtype.itemsize
    is_in = begin < source.address + source.count * source.dtype.itemsize
    if is_in and source.address < begin + nbytes:
        return take([copy_of(array)], held)
    return source


def _even(piece: UccBuffer, kind: int = datatype(_BYTES)) -> ucc.EvenBuffer:
    """A piece in elements, or in bytes where they are only moved."""
    scale = piece.dtype.itemsize if kind == datatype(_BYTES) else 1
    return ucc.EvenBuffer(piece.address, piece.count * scale, kind, piece.memory_type)


def _set(
    memory: ucc.CollBuffer,
    piece: UccBuffer,
    counts: Sequence[int] | None,
    held: HeldMemory,
    kind: int = datatype(_BYTES),
) -> None:
    """A piece that is cut into these counts; None: as it is."""
    if counts is None:
        memory.even = _even(piece, kind)
        return
    scale = piece.dtype.itemsize if kind == datatype(_BYTES) else 1
    numbers = np.array(counts, np.uint64) * np.uint64(scale)
    begins = np.concatenate([np.zeros(1, np.uint64), np.cumsum(numbers, dtype=np.uint64)])
    held.keeps.extend((numbers, begins))
    memory.uneven = ucc.UnevenBuffer(
        piece.address, numbers.ctypes.data, begins.ctypes.data, kind, piece.memory_type
    )


def can_reduce(op: ReduceOp, dtype: Dtype) -> bool:
    """Whether UCC has the op for elements of the dtype."""
    return dtype in _DATATYPES and op.op in _OPS
