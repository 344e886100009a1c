"""A stand-in for NCCL on streams: what is queued is carried out in the order of each stream, and when all its
ranks have come to it; nothing blocks the host. It claims nothing about hardware.

A message is handed over when both sides have come to it: NCCL promises no more.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from distdbg.runtime.backends.nccl.library import NcclLibrary
from tests.unit.nccl.computing import TYPES
from tests.unit.nccl.stand_in import (
    VERSION,
    Machine,
    StandInCuda,
    StandInEvent,
    StandInExtra,
    StandInStream,
)

#: An item of a stream: called until it returns True, which is when the device is done with it.
Item = Callable[[], bool]
#: Of any machine.
MOST_RANKS = 8


class StreamingMachine(Machine):
    """What the ranks share."""

    def __init__(self) -> None:
        super().__init__()
        #: Protects all that follows, and what the items look at.
        self.lock = threading.RLock()
        self.queues: dict[int, deque[Item]] = {}
        self.cliques: dict[bytes, Clique] = {}
        self.mine = threading.local()
        #: (size of the communicator, rank in it)
        self.made: list[tuple[int, int]] = []
        self.ended: list[tuple[str, int, int]] = []
        #: By the rank: set when NCCL has a collective of it.
        self.has_collective = {rank: threading.Event() for rank in range(MOST_RANKS)}
        self._ids = itertools.count(1)

    def library(self, version: int = VERSION) -> NcclLibrary:
        made = super().library(version)
        made.nccl.get_unique_id = lambda: next(self._ids).to_bytes(128, "little")
        made.nccl.groupStart = self._start
        made.nccl.groupEnd = self._end
        made.nccl.NcclCommunicator = lambda size, unique_id, rank: StreamingCommunicator(
            self, size, bytes(unique_id), rank
        )
        cupy = SimpleNamespace(
            cuda=StreamingCuda(self), zeros=made.cupy.zeros, empty=made.cupy.empty
        )
        return NcclLibrary(cupy, made.nccl, StandInExtra(self))

    def put(self, stream: int, item: Item) -> None:
        with self.lock:
            self.queues[stream].append(item)
            self.go_on()

    def go_on(self) -> None:
        """Carry out what can be."""
        with self.lock:
            has_moved = True
            while has_moved:
                has_moved = False
                for items in self.queues.values():
                    while items and items[0]():
                        items.popleft()
                        has_moved = True

    def call(self, stream: int, item: Item) -> None:
        group: list[tuple[int, Item]] | None = getattr(self.mine, "calls", None)
        if group is None:
            self.put(stream, item)
        else:
            group.append((stream, item))

    def _start(self) -> None:
        self.mine.calls = []

    def _end(self) -> None:
        group, self.mine.calls = self.mine.calls, None
        if group:
            left = [item for _, item in group]

            def together() -> bool:
                left[:] = [item for item in left if not item()]
                return not left

            self.put(group[0][0], together)


class Clique:
    """What the ranks of one communicator share."""

    def __init__(self) -> None:
        self.boards: dict[int, dict[int, tuple[Any, Any]]] = defaultdict(dict)
        self.messages: dict[tuple[int, int], deque[list[Any]]] = defaultdict(deque)


class StreamingCommunicator:
    """One rank's."""

    def __init__(self, machine: StreamingMachine, size: int, unique_id: bytes, rank: int) -> None:
        self._machine, self.size, self.rank = machine, size, rank
        self.comm = rank + 1
        self._numbers = itertools.count()
        self._is_aborted = False
        with machine.lock:
            machine.made.append((size, rank))
            self._clique = machine.cliques.setdefault(unique_id, Clique())

    def _collective(
        self, what: Any, read: Callable[[], Any], write: Callable[[list[Any]], None], stream: int
    ) -> None:
        board = self._clique.boards[next(self._numbers)]

        def item() -> bool:
            if self._is_aborted:
                return True
            if self.rank not in board:
                board[self.rank] = what, read()
            if len(board) < self.size:
                return False
            if len({said for said, _ in board.values()}) > 1:
                return False  # NCCL would never end, or write anything
            write([board[rank][1] for rank in range(self.size)])
            return True

        self._machine.call(stream, item)
        self._machine.has_collective[self.rank].set()

    def allReduce(
        self, source: int, target: int, count: int, code: int, op: int, stream: int
    ) -> None:
        def write(found: list[Any]) -> None:
            memory(target, count, code)[:] = np.sum(found, axis=0)

        what = ("allReduce", count, code, op)
        self._collective(what, lambda: memory(source, count, code).copy(), write, stream)

    def send(self, source: int, count: int, code: int, peer: int, stream: int) -> None:
        mine: list[Any] = []

        def item() -> bool:
            if not mine:
                mine.extend([memory(source, count, code).copy(), False])
                self._clique.messages[self.rank, peer].append(mine)
            return self._is_aborted or bool(mine[1])

        self._machine.call(stream, item)

    def recv(self, target: int, count: int, code: int, peer: int, stream: int) -> None:
        messages = self._clique.messages[peer, self.rank]

        def item() -> bool:
            if self._is_aborted:
                return True
            if not messages or messages[0][0].size != count:
                return False  # NCCL would never end either
            message = messages.popleft()
            memory(target, count, code)[:] = message[0]
            message[1] = True
            return True

        self._machine.call(stream, item)

    def check_async_error(self) -> None:
        """None."""

    def abort(self) -> None:
        self._is_aborted = True
        self._machine.ended.append(("abort", self.size, self.rank))
        self._machine.go_on()

    def destroy(self) -> None:
        self._machine.ended.append(("destroy", self.size, self.rank))


class StreamingCuda(StandInCuda):
    """With streams that carry out what is queued."""

    def __init__(self, machine: StreamingMachine) -> None:
        super().__init__(machine)
        self._streaming = machine

    def Stream(self, non_blocking: bool, priority: int) -> StandInStream:
        with self._streaming.lock:
            stream = StreamingStream(next(self._streams), priority, self._streaming)
            self._streaming.queues[stream.ptr] = deque()
        return stream

    def Event(self, disable_timing: bool) -> StandInEvent:
        return StreamingEvent(self._streaming)


class StreamingStream(StandInStream):
    """Of a communicator."""

    def __init__(self, ptr: int, priority: int, machine: StreamingMachine) -> None:
        super().__init__(ptr, priority)
        self._machine = machine

    def wait_event(self, event: Any) -> None:
        self._machine.put(self.ptr, lambda: bool(event.done))


class StreamingEvent(StandInEvent):
    """Over when its stream has come to it."""

    def record(self, stream: Any) -> None:
        queue: Any = self._machine
        if stream.ptr not in queue.queues:  # of the program, whose own work is done at once
            self.is_over = True
            return

        def item() -> bool:
            self.is_over = True
            return True

        queue.put(stream.ptr, item)

    @property
    def done(self) -> bool:
        return self.is_over


def memory(at: int, count: int, code: int) -> Any:
    """Elements at an address."""
    nbytes = count * TYPES[code].itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(at), TYPES[code])
