"""A backend in memory, for ranks as threads, that can be told to hang, to raise and to be slow.

`Together` is such as somebody else would write: torch's names, ops carried out in order on a thread of
its own, handles that can be waited for. What it moves it takes without looking: mismatched ops give
wrong bytes, as with a real library.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import distdbg as dist
from distdbg.runtime.backends.registry import Backend

Array = npt.NDArray[Any]


class Handle:
    """An op on the thread of the backend."""

    def __init__(self, future: Future[int]) -> None:
        self._future = future

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        self._future.result()
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def source_rank(self) -> int:
        return self._future.result()


class Together:
    """Reductions are sums of raw memory as float64, whatever the arrays say."""

    #: Ops that never end, and ops that raise, by rank.
    hangs: ClassVar[dict[int, str]] = {}
    raises: ClassVar[dict[int, str]] = {}
    made: ClassVar[list[Together]] = []

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.count = 0
        self.sent: dict[tuple[int, int], int] = {}
        self.received: dict[tuple[int, int], int] = {}
        self.started: list[str] = []
        self.events: list[str] = []
        self.is_aborted = threading.Event()
        self.workers = ThreadPoolExecutor(1)
        #: Messages do not wait for collectives.
        self.movers = ThreadPoolExecutor(8)
        self.made.append(self)

    def _start(self, name: str, work: Callable[[], int | None], is_message: bool = False) -> Handle:
        self.started.append(name)

        def carry_out() -> int:
            if self.hangs.get(self.rank) == name:
                self.is_aborted.wait(60)
                raise RuntimeError("aborted")
            if self.raises.get(self.rank) == name:
                raise RuntimeError(f"{name} is broken here")
            return -1 if (source := work()) is None else source

        pool = self.movers if is_message else self.workers
        return Handle(pool.submit(carry_out))

    def _get(self, key: str) -> bytes:
        while not self.store.check([key]):
            if self.is_aborted.wait(0.001):
                raise RuntimeError("aborted")
        return self.store.get(key)

    def _exchange(self, mine: object) -> list[Any]:
        self.count += 1
        self.store.set(f"{self.count}/{self.rank}", pickle.dumps(mine))
        return [pickle.loads(self._get(f"{self.count}/{rank}")) for rank in range(self.size)]

    def allreduce(self, arrays: Sequence[Array], opts: Any) -> Handle:
        def work() -> None:
            parts = self._exchange(arrays[0].tobytes())
            total = sum(np.frombuffer(part, np.uint8).astype(np.uint64).sum() for part in parts)
            arrays[0][...] = total

        return self._start("allreduce", work)

    def broadcast(self, arrays: Sequence[Array], opts: Any) -> Handle:
        def work() -> None:
            self.count += 1
            key = f"{self.count}/root"
            if self.rank == opts.rootRank:
                self.store.set(key, arrays[0].tobytes())
            else:
                arrays[0][...] = np.frombuffer(self._get(key), arrays[0].dtype)[: arrays[0].size]

        return self._start("broadcast", work)

    def reduce(self, arrays: Sequence[Array], opts: Any) -> Handle:
        return self.allreduce(arrays, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Handle:
        def work() -> None:
            for output, part in zip(outputs[0], self._exchange(inputs[0]), strict=True):
                output[...] = part

        return self._start("allgather", work)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Handle:
        def work() -> None:
            parts = self._exchange(inputs[0])
            for output, part in zip(outputs[0] if outputs else [], parts, strict=False):
                output[...] = part

        return self._start("gather", work)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any) -> Handle:
        def work() -> None:
            blocks = self._exchange(list(inputs))
            for output, theirs in zip(outputs, blocks, strict=True):
                output[...] = theirs[self.rank]

        return self._start("alltoall", work)

    def barrier(self, opts: Any) -> Handle:
        def work() -> None:
            self._exchange(None)

        return self._start("barrier", work)

    def send(self, arrays: Sequence[Array], dst: int, tag: int) -> Handle:
        number = self.sent[dst, tag] = self.sent.get((dst, tag), 0) + 1
        self.store.set(f"p2p/{self.rank}/{dst}/{tag}/{number}", arrays[0].tobytes())
        return self._start("send", lambda: None, True)

    def recv(self, arrays: Sequence[Array], src: int, tag: int) -> Handle:
        number = self.received[src, tag] = self.received.get((src, tag), 0) + 1
        key = f"p2p/{src}/{self.rank}/{tag}/{number}"

        def work() -> int:
            data = np.frombuffer(self._get(key), np.uint8)
            memory = arrays[0].reshape(-1).view(np.uint8)
            memory[: data.size] = data[: memory.size]
            return src

        return self._start("recv", work, True)

    def recv_anysource(self, arrays: Sequence[Array], tag: int) -> Handle:
        def work() -> int:
            while not self.is_aborted.wait(0.001):
                for src in range(self.size):
                    number = self.received.get((src, tag), 0) + 1
                    if self.store.check([f"p2p/{src}/{self.rank}/{tag}/{number}"]):
                        return self.recv(arrays, src, tag)._future.result()
            raise RuntimeError("aborted")

        return self._start("recv", work, True)

    def abort(self) -> None:
        self.events.append("abort")
        self.is_aborted.set()

    def shutdown(self) -> None:
        self.events.append("shutdown")
        self.is_aborted.set()
        self.workers.shutdown()
        self.movers.shutdown()


class Bound(Together):
    """Such as must be called on the thread of the caller."""

    distdbg_is_bound_to_thread = True
    threads: ClassVar[set[str]] = set()

    def _start(self, name: str, work: Callable[[], int | None], is_message: bool = False) -> Handle:
        self.threads.add(threading.current_thread().name)
        return super()._start(name, work, is_message)


class Tagless(Together):
    """Such as matches messages in order, whatever their tags."""

    distdbg_ignores_tags = True

    def send(self, arrays: Sequence[Array], dst: int, tag: int) -> Handle:
        return super().send(arrays, dst, 0)

    def recv(self, arrays: Sequence[Array], src: int, tag: int) -> Handle:
        return super().recv(arrays, src, 0)


class Striding(Together):
    """Such as moves elements, in any order of memory."""

    distdbg_reads_strides = True


@contextmanager
def registered() -> Iterator[None]:
    """Make the classes above backends for a while."""
    for made in (Together, Bound, Tagless, Striding):
        made.hangs.clear()
        made.raises.clear()
        made.made.clear()
        Backend.register_backend(made.__name__, made, devices="cpu")
    Bound.threads.clear()
    try:
        yield
    finally:
        for made in (Together, Bound, Tagless, Striding):
            Backend.unregister_backend(made.__name__)
