"""A stand-in for NCCL that computes, on memory of the host; its ranks are threads.

It knows what NCCL's documentation says of each call and nothing of ours. So a right result means that
the calls, addresses, counts, types and reduce ops were right. It claims nothing about hardware, streams or
speed.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from distdbg.runtime.backends.nccl.library import NcclLibrary
from tests.unit.nccl.stand_in import VERSION, Machine

LIMIT_S = 60
#: By NCCL's numbers: ncclInt8, ncclUint8, ...
TYPES = tuple(
    np.dtype(name)
    for name in (
        *("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    )
)
SUM, PROD, MAX, MIN, AVG = range(5)
_FOLDS = {SUM: np.add, PROD: np.multiply, MAX: np.maximum, MIN: np.minimum, AVG: np.add}


class ComputingMachine(Machine):
    """What the ranks share."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._cliques: dict[Any, Clique] = {}
        #: Of PREMUL_SUM: by the number of the op.
        self.factors: dict[int, Any] = {}
        #: Calls of a thread between groupStart and groupEnd.
        self.mine = threading.local()

    def clique(self, key: Any, size: int) -> Clique:
        with self._lock:
            return self._cliques.setdefault(key, Clique(size))

    def library(self, version: int = VERSION) -> NcclLibrary:
        made = super().library(version)
        made.nccl.get_unique_id = lambda: next(self._ids).to_bytes(128, "little")
        made.nccl.groupStart = self._start
        made.nccl.groupEnd = self._end
        made.nccl.NcclCommunicator = lambda size, unique_id, rank: Communicator(
            self, self.clique(bytes(unique_id), size), unique_id, rank
        )
        made.cupy.cuda.runtime.memcpyAsync = lambda target, source, nbytes, *_: ctypes.memmove(
            target, source, nbytes
        )
        return NcclLibrary(made.cupy, made.nccl, PremulSums(self))

    def call(self, function: Callable[[], None], *, is_send: bool = False) -> bool:
        """Carry it out now, or at the end of the group of calls, where what is sent waits for nobody.

        Returns whether it was now.
        """
        group: list[tuple[bool, Callable[[], None]]] | None = getattr(self.mine, "calls", None)
        if group is None:
            function()
        else:
            group.append((not is_send, function))
        return group is None

    def _start(self) -> None:
        assert getattr(self.mine, "calls", None) is None
        self.mine.calls = []

    def _end(self) -> None:
        group, self.mine.calls = self.mine.calls, None
        for _, function in sorted(group, key=lambda each: each[0]):
            function()


class PremulSums:
    """Implements Extra."""

    def __init__(self, machine: ComputingMachine) -> None:
        self._machine = machine
        self._numbers = itertools.count(1000)

    def last_error(self, comm: int) -> str:
        return ""

    def make_premul_sum(self, factor: bytes, code: int, comm: int) -> int:
        number = next(self._numbers)
        self._machine.factors[number] = np.frombuffer(factor, TYPES[code])[0]
        return number

    def destroy_op(self, op: int, comm: int) -> None:
        """NCCL keeps what was queued with it."""


class Clique:
    """What the ranks of one communicator share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._boards: dict[int, dict[int, Any]] = defaultdict(dict)
        #: With what tells that it was taken; made before anybody looks, since two may look at once.
        self.messages: dict[tuple[int, int], queue.Queue[tuple[Any, threading.Event]]] = {
            pair: queue.Queue() for pair in itertools.product(range(size), repeat=2)
        }

    def exchange(self, number: int, rank: int, mine: Any) -> list[Any]:
        """What each rank brings to its call of this number."""
        with self._changed:
            board = self._boards[number]
            board[rank] = mine
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(board) == self.size, LIMIT_S)
            return [board[rank] for rank in range(self.size)]


class Communicator:
    """One rank's."""

    def __init__(
        self, machine: ComputingMachine, clique: Clique, unique_id: object, rank: int
    ) -> None:
        self._machine, self._clique, self._id, self.rank = machine, clique, unique_id, rank
        self._numbers = itertools.count()
        self.comm = rank + 1

    def _meet(self, what: tuple[Any, ...], mine: Any) -> list[Any]:
        """All ranks have to make the same call."""
        found = self._clique.exchange(next(self._numbers), self.rank, (what, mine))
        assert {said for said, _ in found} == {what}, found
        return [brought for _, brought in found]

    def _fold(self, arrays: list[Any], op: int) -> Any:
        fold = _FOLDS.get(op, np.add)
        total = arrays[0]
        for array in arrays[1:]:
            total = fold(total, array).astype(total.dtype)
        if op == AVG:
            is_exact = total.dtype.kind in "iu"
            total = total // self._clique.size if is_exact else total / self._clique.size
        return total

    def _read(self, at: int, count: int, code: int, op: int = SUM) -> Any:
        array = memory(at, count, code).copy()
        factor = self._machine.factors.get(op)
        return array if factor is None else (array * factor).astype(array.dtype)

    def broadcast(self, source: int, target: int, count: int, code: int, root: int, _: int) -> None:
        def run() -> None:
            mine = self._read(source, count, code) if self.rank == root else None
            found = self._meet(("broadcast", count, code, root), mine)
            memory(target, count, code)[:] = found[root]

        self._machine.call(run)

    def allReduce(self, source: int, target: int, count: int, code: int, op: int, _: int) -> None:
        def run() -> None:
            mine = self._read(source, count, code, op)
            found = self._meet(("allReduce", count, code, kind_of(op)), mine)
            memory(target, count, code)[:] = self._fold(found, op)

        self._machine.call(run)

    def reduce(
        self, source: int, target: int, count: int, code: int, op: int, root: int, _: int
    ) -> None:
        def run() -> None:
            mine = self._read(source, count, code, op)
            found = self._meet(("reduce", count, code, kind_of(op), root), mine)
            if self.rank == root:
                memory(target, count, code)[:] = self._fold(found, op)

        self._machine.call(run)

    def allGather(self, source: int, target: int, count: int, code: int, _: int) -> None:
        def run() -> None:
            found = self._meet(("allGather", count, code), self._read(source, count, code))
            memory(target, count * self._clique.size, code)[:] = np.concatenate(found)

        self._machine.call(run)

    def reduceScatter(
        self, source: int, target: int, count: int, code: int, op: int, _: int
    ) -> None:
        def run() -> None:
            mine = self._read(source, count * self._clique.size, code, op)
            found = self._meet(("reduceScatter", count, code, kind_of(op)), mine)
            total = self._fold(found, op)
            memory(target, count, code)[:] = total[self.rank * count : (self.rank + 1) * count]

        self._machine.call(run)

    def send(self, source: int, count: int, code: int, peer: int, _: int) -> None:
        is_taken = threading.Event()

        def run() -> None:
            message = self._read(source, count, code), is_taken
            self._clique.messages[self.rank, peer].put(message)

        is_alone = self._machine.call(run, is_send=True)
        # Alone it waits for whoever receives; in a group that is its partner's business.
        assert not is_alone or is_taken.wait(LIMIT_S), "a send outside of a group is not received"

    def recv(self, target: int, count: int, code: int, peer: int, _: int) -> None:
        def run() -> None:
            came, is_taken = self._clique.messages[peer, self.rank].get(timeout=LIMIT_S)
            is_taken.set()
            assert (came.size, came.dtype) == (count, TYPES[code])
            memory(target, count, code)[:] = came

        self._machine.call(run)

    def commSplit(self, color: int, key: int) -> Communicator | None:
        number = next(self._numbers)
        found = self._clique.exchange(number, self.rank, (color, key))
        if color < 0:
            return None
        members = sorted((k, r) for r, (c, k) in enumerate(found) if c == color)
        part = (self._id, number, color)
        clique = self._machine.clique(part, len(members))
        return Communicator(self._machine, clique, part, members.index((key, self.rank)))

    def check_async_error(self) -> None:
        """None."""

    def abort(self) -> None:
        self._machine.aborted.add(self.rank)

    def destroy(self) -> None:
        self._machine.destroyed.add(self.rank)


class Allocations:
    """What there is of memory on the devices: kept, so that nothing else comes to lie there."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._kept: list[Any] = []
        self._lock = threading.Lock()  # ranks are threads

    def add(self, array: Any) -> None:
        begin, end = np.lib.array_utils.byte_bounds(array)
        with self._lock:
            self._kept.append(array)
            self._ends[begin] = max(end, self._ends.get(begin, 0))

    def check(self, at: int, nbytes: int) -> None:
        if at + nbytes > self._ends.get(at, 0):
            with self._lock:
                places = list(self._ends.items())
            assert any(begin <= at and at + nbytes <= end for begin, end in places), (
                f"{nbytes} bytes are not all in one array"
            )


allocations = Allocations()


def memory(at: int, count: int, code: int) -> np.ndarray[Any, Any]:
    """Elements at an address."""
    if not count:
        return np.empty(0, TYPES[code])
    nbytes = count * TYPES[code].itemsize
    allocations.check(at, nbytes)
    return np.frombuffer((ctypes.c_char * nbytes).from_address(at), TYPES[code])


def kind_of(op: int) -> int:
    """Ops with a factor have numbers of their own on each rank."""
    return op if op in _FOLDS else -1
