"""One op through memory of the host, in chunks: three of them are on their way at once.

    stream down   chunk i+1 from the device to the host
    host          chunk i is reduced or sent
    stream up     chunk i-1 back to the device

A chunk is a piece of each block of the op, the same piece on every rank, so each chunk is an op of the same
kind by itself, and all together are one op. What is in which chunk depends on sizes alone that are alike on
all ranks: those of the blocks, or, where each rank knows but some of them, the largest, which they tell each
other first. A block that is shorter has nothing in the last chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from distdbg.ops.call import Kind
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.backends.gpu import held_copies
from distdbg.runtime.backends.gpu.driver import Bytes, Driver
from distdbg.runtime.backends.gpu.host_memory import HostMemory

#: Of all blocks of one chunk together. NOT MEASURED: long enough that a copy's latency is nothing beside it.
CHUNK_NBYTES: int = 4 << 20
_LEAST_NBYTES: Final = 64 << 10
#: Chunks that are on their way at once.
_PLACES: Final = 3
_ALIGN: Final = 256
#: So long an op that has failed waits for copies that are on their way.
_PATIENCE_NS: Final = 2_000_000_000
_PAUSE_S: Final = 0.0005


class DeviceBlock(NamedTuple):
    """A piece of memory on the device."""

    address: int
    nbytes: int


class ChunkedOp(NamedTuple):
    """One op, as far as it concerns memory."""

    kind: Kind
    dtype: Dtype
    #: Blocks that this rank reads, and those that it writes.
    inputs: Sequence[DeviceBlock]
    outputs: Sequence[DeviceBlock]
    is_in_place: bool
    #: What PREMUL_SUM multiplies the inputs with.
    factor: float | None
    #: Whether this rank's op reads its inputs; all but the root of a broadcast only write.
    reads: bool
    writes: bool


#: Carries out the op on host memory: inputs, outputs (the same list in place).
Move = Callable[[Sequence[Bytes], Sequence[Bytes]], None]


def cut(nbytes: int, ranks: int, kind: Kind, itemsize: int) -> int:
    """How many bytes of each block go in one chunk."""
    blocks = 1 if kind in (Kind.BROADCAST, Kind.ALL_REDUCE, Kind.REDUCE) else ranks
    piece = max(_LEAST_NBYTES if CHUNK_NBYTES > _LEAST_NBYTES else 1, CHUNK_NBYTES // blocks)
    return min(max(1, nbytes), -(-piece // (_ALIGN * itemsize)) * _ALIGN * itemsize)


def longest(job: ChunkedOp) -> int:
    """Bytes of the largest block that this rank knows of."""
    return max((block.nbytes for block in (*job.inputs, *job.outputs)), default=0)


def pieces(
    job: ChunkedOp, ranks: int, nbytes: int
) -> Iterator[tuple[list[DeviceBlock], list[DeviceBlock]]]:
    """The blocks of each chunk, in order; `nbytes`: of the largest block of all ranks."""
    step = cut(nbytes, ranks, job.kind, job.dtype.itemsize)
    for start in range(0, max(1, nbytes), step):
        yield (
            [_part(block, start, step) for block in job.inputs],
            [_part(block, start, step) for block in job.outputs],
        )


def _part(block: DeviceBlock, start: int, nbytes: int) -> DeviceBlock:
    at = min(start, block.nbytes)
    return DeviceBlock(block.address + at, min(nbytes, block.nbytes - at))


class _Chunk:
    """One of them, in its place on the host."""

    def __init__(
        self, number: int, job: ChunkedOp, blocks: tuple[list[DeviceBlock], list[DeviceBlock]]
    ) -> None:
        self.place = number % _PLACES
        self.in_blocks, self.out_blocks = blocks
        self.inputs: list[Bytes] = []
        self.outputs: list[Bytes] = []
        #: After its copy to the host.
        self.is_down: Any = None


class Pipeline:
    """The streams and the memory of one group."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory = HostMemory(driver)
        self._down: Any = None
        self._up: Any = None

    def run(
        self,
        job: ChunkedOp,
        ranks: int,
        nbytes: int,
        ready: Any,
        move: Move,
        await_event: Callable[[Any], None],
        arrays: object = None,
    ) -> None:
        """Carry it out. `nbytes`: of the largest block of all ranks; `ready`: after it inputs may be read.

        `arrays`: what the blocks are in, kept as long as the device may have them.
        """
        held_copies.look()
        driver = self._driver
        if self._down is None:
            self._down, self._up = driver.stream(), driver.stream()
        for stream in (self._down, self._up):
            driver.wait_for(stream, ready.ptr)
        #: Of the last chunk that was in each place: after its copy to the device.
        is_up: list[Any] = [None] * _PLACES
        try:
            coming: _Chunk | None = None
            for number, blocks in enumerate(pieces(job, ranks, nbytes)):
                chunk = _Chunk(number, job, blocks)
                if is_up[chunk.place] is not None:
                    await_event(is_up[chunk.place])
                self._bring_down(job, chunk)
                if coming is not None:
                    is_up[coming.place] = self._carry_out(job, coming, move, await_event)
                coming = chunk
            if coming is not None:
                is_up[coming.place] = self._carry_out(job, coming, move, await_event)
            for event in is_up:
                if event is not None:
                    await_event(event)
        except BaseException:
            has_let_go = False
            try:
                has_let_go = self._has_let_go()
            finally:  # also where somebody presses Ctrl-C again
                if not has_let_go:
                    held_copies.hold(driver, self._last_events(), (self._memory, arrays))
                    self._memory = HostMemory(driver)
            raise
        finally:
            self._memory.keep_below(_PLACES * CHUNK_NBYTES)

    def _has_let_go(self) -> bool:
        """The arrays belong to the program again: when the device has done what it has, if it ever has."""
        until_ns = time.monotonic_ns() + _PATIENCE_NS
        events = self._last_events()
        with suppress(RuntimeError):  # of CUDA: what broke the op says more
            for event in events:
                while not self._driver.has_passed(event):
                    if time.monotonic_ns() > until_ns:
                        return False
                    time.sleep(_PAUSE_S)
            return bool(events)
        return False

    def _last_events(self) -> list[Any]:
        """After what both streams have; none where CUDA does not say."""
        with suppress(RuntimeError):
            return [self._driver.event(stream) for stream in (self._down, self._up)]
        return []

    def close(self) -> None:
        """Give its memory back."""
        self._memory.free()

    def _bring_down(self, job: ChunkedOp, chunk: _Chunk) -> None:
        memory, driver = self._memory, self._driver
        chunk.inputs = _lay_out(
            memory.take(chunk.place, "in", _total(chunk.in_blocks)), chunk.in_blocks
        )
        chunk.outputs = chunk.inputs
        if not job.is_in_place:
            chunk.outputs = _lay_out(
                memory.take(chunk.place, "out", _total(chunk.out_blocks)), chunk.out_blocks
            )
        if job.reads:
            for block, host in zip(chunk.in_blocks, chunk.inputs, strict=True):
                if block.nbytes:
                    driver.copy(host.ctypes.data, block.address, block.nbytes, self._down)
        chunk.is_down = driver.event(self._down)

    def _carry_out(
        self, job: ChunkedOp, chunk: _Chunk, move: Move, await_event: Callable[[Any], None]
    ) -> Any:
        driver = self._driver
        await_event(chunk.is_down)
        if job.factor is not None:
            for host in chunk.inputs:
                values = host.view(job.dtype.to_numpy())
                values *= job.factor
        move(chunk.inputs, chunk.outputs)
        if job.writes:
            for block, host in zip(chunk.out_blocks, chunk.outputs, strict=True):
                if block.nbytes:
                    driver.copy(block.address, host.ctypes.data, block.nbytes, self._up)
        return driver.event(self._up)


def _total(blocks: Sequence[DeviceBlock]) -> int:
    return sum(block.nbytes for block in blocks)


def _lay_out(memory: Bytes, blocks: Sequence[DeviceBlock]) -> list[Bytes]:
    """A part of the memory for each block, one after the other."""
    parts, start = [], 0
    for block in blocks:
        parts.append(memory[start : start + block.nbytes])
        start += block.nbytes
    return parts
