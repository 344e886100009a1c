"""How one case is timed inside one set of ranks; the same code for every library.

    warm-up    the op runs in doubling batches until a batch takes `Limits.warmup_s`; that gives the
               number of iterations of a block
    block      barrier, then the iterations back to back; its time is that of the slowest rank,
               divided by the iterations
    result     all block times; the caller takes the median over blocks and over rounds
    rewriting  with `Limits.rewrites` a rank writes what it sends before each op, as programs do, so that no
               peer has it in its cache already; what the writing takes by itself is taken off

All decisions are taken from times that all ranks agreed on, so all run the same number of ops.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np

from benchmarks.buffers import make_buffers
from benchmarks.cases import Case


class Library(Protocol):
    """One communication library, as a rank of it sees it."""

    rank: int
    world_size: int

    def bind(self, kind: str, source: object, target: object) -> Callable[[], object]:
        """The op on these NumPy arrays, ready to be called without arguments."""
        ...

    def barrier(self) -> None:
        """Wait for all ranks."""
        ...

    def maxima(self, values: list[float]) -> list[float]:
        """The largest over the ranks, for each place."""
        ...

    def close(self) -> None:
        """Leave, together with all ranks."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one case may take."""

    warmup_s: float = 0.01
    block_s: float = 0.01
    case_s: float = 0.25
    min_blocks: int = 3
    max_blocks: int = 25
    rewrites: bool = False


def time_batch(op: Callable[[], object], iterations: int, barrier: Callable[[], None]) -> float:
    """Seconds that this rank needs for `iterations` calls, started together with the others."""
    barrier()
    began = time.perf_counter()
    for _ in range(iterations):
        op()
    return time.perf_counter() - began


def measure(library: Library, case: Case, limits: Limits) -> list[float]:
    """Seconds per op, one entry per block; equal on all ranks."""
    zeros = getattr(library, "zeros", np.zeros)
    buffers = make_buffers(case.kind, case.count(library.world_size), library.world_size, zeros)
    op = library.bind(case.kind, buffers.source, buffers.target)
    buffers.fill_with_pattern(library.rank, library.world_size)
    library.barrier()
    op()
    buffers.check(library.rank, library.world_size)
    buffers.fill_with_zeros()
    write = buffers.writer(library.rank) if limits.rewrites else None
    if write is not None:
        op = _after(write, op)

    iterations = 1
    while True:
        [batch_s] = library.maxima([time_batch(op, iterations, library.barrier)])
        if batch_s >= limits.warmup_s or iterations >= 1 << 20:
            break
        iterations *= 2
    per_op_s = batch_s / iterations
    iterations = max(1, round(limits.block_s / per_op_s))
    blocks = int(limits.case_s / (iterations * per_op_s))
    blocks = min(limits.max_blocks, max(limits.min_blocks, blocks))

    gc.collect()
    gc.disable()
    try:
        times = [time_batch(op, iterations, library.barrier) for _ in range(blocks)]
        written = (
            [time_batch(write, iterations, library.barrier) for _ in range(3)] if write else [0.0]
        )
    finally:
        gc.enable()
    written_s = median(library.maxima(written))
    # A ping-pong is two messages; the time of one is what other tools print.
    messages = 2 if case.kind == "send_recv" else 1
    return [
        max(seconds - written_s, 0.0) / iterations / messages for seconds in library.maxima(times)
    ]


def _after(write: Callable[[], object], op: Callable[[], object]) -> Callable[[], object]:
    def both() -> None:
        write()
        op()

    return both
