"""A registered third-party backend runs every collective, through the ordinary API.

`ThirdParty` is such as somebody else would write: torch's method names over one primitive,
`exchange`, which gives each rank what all ranks brought. It knows nothing of Calls or engines.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import distdbg as dist
from distdbg.errors import DistBackendError, UsageError
from distdbg.runtime.groups.group import ProcessGroup
from tests.support.store_ranks import run_store_ranks

Array = npt.NDArray[Any]


class DoneWork:
    """An op that ended before it was returned."""

    def __init__(self, source: int = -1) -> None:
        self._source = source

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def source_rank(self) -> int:
        return self._source


class ThirdParty:
    """Lists only: our adapter has to cut flat arrays for it."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.count = 0
        self.sent = [0] * size
        self.received = [0] * size
        self.seen_timeouts: list[timedelta] = []
        self.is_shut_down = False

    def exchange(self, mine: object) -> list[Any]:
        self.count += 1
        self.store.set(f"{self.count}/{self.rank}", pickle.dumps(mine))
        keys = [f"{self.count}/{rank}" for rank in range(self.size)]
        self.store.wait(keys, self.timeout)
        return [pickle.loads(self.store.get(key)) for key in keys]

    def allreduce(self, tensors: Sequence[Array], opts: dist.AllreduceOptions) -> DoneWork:
        self.seen_timeouts.append(opts.timeout)
        (tensor,) = tensors
        tensor[...] = self._reduce(self.exchange(tensor), opts.reduceOp)
        return DoneWork()

    def _reduce(self, parts: list[Array], op: dist.ReduceOp) -> Array:
        if op != dist.ReduceOp.SUM:
            raise ValueError(f"only SUM, not {op!r}")
        total: Array = np.sum(parts, axis=0)
        return total

    def broadcast(self, tensors: Sequence[Array], opts: dist.BroadcastOptions) -> DoneWork:
        tensors[0][...] = self.exchange(tensors[0])[opts.rootRank]
        return DoneWork()

    def reduce(self, tensors: Sequence[Array], opts: dist.ReduceOptions) -> DoneWork:
        total = self._reduce(self.exchange(tensors[0]), opts.reduceOp)
        if self.rank == opts.rootRank:
            tensors[0][...] = total
        return DoneWork()

    def allgather(
        self, outputs: Sequence[Sequence[Array]], inputs: Sequence[Array], opts: object
    ) -> DoneWork:
        for output, part in zip(outputs[0], self.exchange(inputs[0]), strict=True):
            output[...] = part
        return DoneWork()

    def gather(
        self,
        outputs: Sequence[Sequence[Array]],
        inputs: Sequence[Array],
        opts: dist.GatherOptions,
    ) -> DoneWork:
        parts = self.exchange(inputs[0])
        assert bool(outputs) == (self.rank == opts.rootRank)
        for output, part in zip(outputs[0] if outputs else [], parts, strict=False):
            output[...] = part
        return DoneWork()

    def scatter(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Sequence[Array]],
        opts: dist.ScatterOptions,
    ) -> DoneWork:
        outputs[0][...] = self.exchange(inputs)[opts.rootRank][0][self.rank]
        return DoneWork()

    def reduce_scatter(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Sequence[Array]],
        opts: dist.ReduceScatterOptions,
    ) -> DoneWork:
        parts = [lists[0][self.rank] for lists in self.exchange(inputs)]
        outputs[0][...] = self._reduce(parts, opts.reduceOp)
        return DoneWork()

    def alltoall(self, outputs: Sequence[Array], inputs: Sequence[Array], opts: object) -> DoneWork:
        for output, blocks in zip(outputs, self.exchange(list(inputs)), strict=True):
            output[...] = blocks[self.rank]
        return DoneWork()

    def barrier(self, opts: dist.BarrierOptions) -> None:
        self.exchange(None)

    def send(self, tensors: Sequence[Array], dst: int, tag: int) -> DoneWork:
        self.store.set(f"p2p/{self.rank}/{dst}/{self.sent[dst]}", tensors[0].tobytes())
        self.sent[dst] += 1
        return DoneWork()

    def recv(self, tensors: Sequence[Array], src: int, tag: int) -> DoneWork:
        data = self.store.get(f"p2p/{src}/{self.rank}/{self.received[src]}")
        self.received[src] += 1
        tensors[0][...] = np.frombuffer(data, tensors[0].dtype).reshape(tensors[0].shape)
        return DoneWork(src)

    def recv_anysource(self, tensors: Sequence[Array], tag: int) -> DoneWork:
        while True:
            for src in range(self.size):
                if self.store.check([f"p2p/{src}/{self.rank}/{self.received[src]}"]):
                    return self.recv(tensors, src, tag)

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.fixture(autouse=True)
def backend() -> Iterator[list[Any]]:
    """Register it for one test; the list holds the backends that were made."""
    made: list[Any] = []

    def make(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
        made.append(ThirdParty(store, rank, size, timeout))
        return made[-1]

    dist.Backend.register_backend("theirs", make, devices=["cpu"])
    yield made
    dist.Backend.unregister_backend("theirs")


@pytest.mark.parametrize("size", [1, 3])
def test_every_collective_runs(size: int, backend: list[Any]) -> None:
    def run(rank: int) -> None:
        n = dist.get_world_size()
        assert dist.get_backend() == "theirs" == dist.Backend.THEIRS  # type: ignore[attr-defined]
        ranks = np.arange(n, dtype=float)
        x = np.array([float(rank), 1.0])
        dist.all_reduce(x)
        assert x.tolist() == [ranks.sum(), n]
        dist.broadcast(x, n - 1)
        y = np.array([float(rank)])
        dist.reduce(y, 0)
        assert y[0] == (ranks.sum() if rank == 0 else rank)
        blocks = [np.zeros(1) for _ in range(n)]
        mine = np.array([float(rank)])
        dist.all_gather(blocks, mine)
        assert [block[0] for block in blocks] == list(ranks)
        flat = np.zeros((n, 1))
        dist.all_gather_into_tensor(flat, mine)
        assert flat[:, 0].tolist() == list(ranks)
        gathered = [np.zeros(1) for _ in range(n)] if rank == 0 else None
        dist.gather(mine, gathered)
        out = np.zeros(1)
        dist.scatter(out, [np.array([r * 2.0]) for r in range(n)] if rank == 0 else None)
        assert out[0] == 2 * rank
        dist.reduce_scatter(out, [np.array([r + 1.0]) for r in range(n)])
        assert out[0] == n * (rank + 1)
        dist.reduce_scatter_tensor(out, ranks.copy())
        assert out[0] == n * rank
        outputs = [np.zeros(1) for _ in range(n)]
        dist.all_to_all(outputs, [np.array([10.0 * rank + to]) for to in range(n)])
        assert [block[0] for block in outputs] == [10.0 * r + rank for r in range(n)]
        even = np.zeros(n)
        dist.all_to_all_single(even, 10.0 * rank + ranks)
        assert even.tolist() == [10.0 * r + rank for r in range(n)]
        counts = [rank + 1] * n
        uneven = np.zeros(n * (n + 1) // 2)
        dist.all_to_all_single(
            uneven, np.full(n * (rank + 1), float(rank)), [r + 1 for r in range(n)], counts
        )
        assert uneven.tolist() == [float(r) for r in range(n) for _ in range(r + 1)]
        dist.barrier()
        objects: list[Any] = [None] * n
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": r} for r in range(n)]
        if n > 1:
            dist.send(mine, (rank + 1) % n)
            assert dist.recv(out) == (rank - 1) % n
            sent = dist.isend(mine, (rank + 1) % n)
            assert dist.recv(out, (rank - 1) % n) == (rank - 1) % n
            assert sent is not None
            assert sent.wait()
            assert out[0] == (rank - 1) % n
        work = dist.all_reduce(x, async_op=True)
        assert work is not None
        assert work.wait()

    run_store_ranks(run, size, backend="theirs")
    assert len(backend) == size
    assert all(made.is_shut_down for made in backend)
    assert backend[0].seen_timeouts[0] == timedelta(seconds=10)


def test_what_it_raises_becomes_a_backend_error() -> None:
    def run(rank: int) -> None:
        with pytest.raises(DistBackendError, match="all_reduce failed in backend ThirdParty"):
            dist.all_reduce(np.zeros(1), dist.ReduceOp.MAX)

    run_store_ranks(run, 2, backend="theirs")


def test_the_extended_form_gets_all_facts_of_the_group(backend: list[Any]) -> None:
    seen = []

    def make(options: dist.DistributedBackendOptions, pg_options: object) -> Any:
        seen.append((options.group_rank, options.group_size, options.global_ranks_in_group))
        assert pg_options is None
        return ThirdParty(options.store, options.group_rank, options.group_size, options.timeout)

    dist.Backend.register_backend("extended", make, extended_api=True, devices="cpu")
    try:
        run_store_ranks(lambda rank: dist.barrier(dist.new_group([1])), 2, backend="extended")
    except UserWarning:
        pass
    finally:
        dist.Backend.unregister_backend("extended")
    assert (0, 1, [1]) in seen
    assert (1, 2, [0, 1]) in seen


def test_names_are_registered_once() -> None:
    for name in ("theirs", "THEIRS", "gloo"):
        with pytest.raises(UsageError, match="already registered"):
            dist.Backend.register_backend(name, ThirdParty)


def test_a_subclass_of_process_group_is_used_through_its_methods() -> None:
    class Doubling(ProcessGroup):
        def allreduce(self, tensors: Any, opts: Any = None, *rest: Any, **more: Any) -> Any:
            tensors[0] *= 2
            return DoneWork()

    group = Doubling(0, 1)
    x = np.ones(2)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2.0, 2.0]
    with pytest.raises(DistBackendError, match="'broadcast'"):
        dist.broadcast(x, 0, group=group)
    group.shutdown()
