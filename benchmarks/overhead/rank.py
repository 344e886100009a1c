"""The program of every rank: `python -m benchmarks.overhead.rank LIBRARY RANK WORLD_SIZE PORT`.

It reads one JSON order per line from stdin and answers each with one line on its own stdout; what
the library prints goes to stderr. While other ranks are measured it waits in that read.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.buffers import make_buffers
from benchmarks.cases import Case
from benchmarks.libraries import TorchLike, open_library
from benchmarks.machine import die_with_parent
from benchmarks.measure import time_batch

Op = Callable[[], object]


class Player:
    """One rank, with its ops ready to be called."""

    def __init__(self, library: TorchLike) -> None:
        self._library = library
        self._ops: dict[Case, Op] = {}
        self._level: str | None = None

    def burst(self, order: dict[str, Any]) -> list[float]:
        """Seconds per op on this rank, one entry per burst."""
        case = Case(order["kind"], order["nbytes"])
        if case not in self._ops:
            self._ops[case] = self._make(case)
        if order["level"] != self._level:
            self._level = order["level"]
            dist = self._library.dist
            dist.set_debug_level(dist.DebugLevel[self._level])
        op, barrier, iterations = self._ops[case], self._library.barrier, order["iterations"]
        run = partial(time_batch, op, iterations, barrier)
        # The level of the others counts until they have switched too; and caches get warm.
        time_batch(op, max(1, iterations // 8), barrier)
        frames = int(case.kind.split()[1]) if case.kind.endswith("deeper") else 0
        gc.disable()
        try:
            times = [at_depth(frames, run) for _ in range(order["bursts"])]
        finally:
            gc.enable()
        # A ping-pong is two messages.
        return [seconds / iterations / (2 if case.kind == "send_recv" else 1) for seconds in times]

    def _make(self, case: Case) -> Op:
        library, dist = self._library, self._library.dist
        rank, world_size = library.rank, library.world_size
        match case.kind:
            case "mark":
                return partial(dist.mark, "step", 12)
            case "span":
                return partial(enter_and_leave, partial(dist.span, "forward"))
            case "monitored_barrier":
                return partial(dist.monitored_barrier)
            case "foreign all_reduce":
                dist.Backend.register_backend("nothing", Nothing)
                group = dist.new_group(backend="nothing")
                return partial(dist.all_reduce, np.zeros(2, dtype=np.float32), group=group)
        kind = "all_reduce" if "all_reduce" in case.kind else case.kind
        buffers = make_buffers(kind, case.count(world_size), world_size)
        op = library.bind(kind, buffers.source, buffers.target)
        if case.kind.startswith("async"):
            start: Callable[[], Any] = partial(op, async_op=True)  # type: ignore[call-arg] # a partial
            op = partial(start_and_wait, start)
        # A fast wrong result is worth nothing.
        buffers.fill_with_pattern(rank, world_size)
        library.barrier()
        op()
        buffers.check(rank, world_size)
        buffers.fill_with_zeros()
        return op


class Nothing:
    """A foreign backend that does nothing: what remains is the price of what is put beside it."""

    def __init__(self, store: object, rank: int, size: int, timeout: object) -> None:
        pass

    def allreduce(self, arrays: object, opts: object) -> None:
        pass


def start_and_wait(start: Callable[[], Any]) -> None:
    start().wait()


def enter_and_leave(make: Callable[[], Any]) -> None:
    with make():
        pass


def at_depth(frames: int, run: Callable[[], float]) -> float:
    """Call `run` with so many more frames on the stack."""
    return run() if frames == 0 else at_depth(frames - 1, run)


def time_inits(rank: int, world_size: int, ports: list[int]) -> list[float]:
    """Seconds that init_process_group takes, once for each port."""
    import distdbg as dist

    times = []
    for port in ports:
        began = time.perf_counter()
        dist.init_process_group(
            init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size
        )
        times.append(time.perf_counter() - began)
        dist.barrier()  # so that all begin the next one together
        dist.destroy_process_group()
    return times


def main(library_name: str, rank: int, world_size: int, port: int) -> None:
    die_with_parent(signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    player: Player | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if order["kind"] == "init_process_group":
            times = time_inits(rank, world_size, order["ports"])
        else:
            if player is None:
                library = open_library(library_name, rank, world_size, port)
                assert isinstance(library, TorchLike)
                player = Player(library)
            times = player.burst(order)
        print(json.dumps(times), file=answers, flush=True)
    if player is not None:
        library.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
