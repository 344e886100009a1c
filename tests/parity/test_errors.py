"""The exceptions: which class, and when."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise
from tests.support.ports import free_port


@promise("`DistError` is the base of all errors here, and a `RuntimeError`")
def test_dist_error() -> None:
    assert issubclass(dist.DistError, RuntimeError)
    for kind in (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError):
        assert issubclass(kind, dist.DistError)


@promise("`DistBackendError` is an error of a backend")
def test_dist_backend_error() -> None:
    with pytest.raises(dist.DistBackendError):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)


@promise("`DistNetworkError` is an error of a connection")
def test_dist_network_error() -> None:
    with pytest.raises(dist.DistNetworkError):
        dist.TCPStore("127.0.0.1", free_port(), timeout=timedelta(milliseconds=50))


@promise("`DistStoreError` is an error of a store, its timeouts among them")
def test_dist_store_error() -> None:
    with pytest.raises(dist.DistStoreError):
        dist.HashStore().wait(["absent"], timedelta(milliseconds=10))


@promise("`QueueEmptyError` is a `DistStoreError`")
def test_queue_empty_error() -> None:
    assert issubclass(dist.QueueEmptyError, dist.DistStoreError)


@promise("One `except RuntimeError` catches what any op raises")
def test_one_except() -> None:
    def run(rank: int) -> int:
        caught = 0
        for bad in (
            lambda: dist.all_reduce(np.ones(1 + rank)),
            lambda: dist.broadcast(np.ones(1), 9),
            lambda: dist.send(np.ones(1), 1 - rank, tag=-1),
            lambda: dist.new_group([5]),
        ):
            try:
                bad()
            except RuntimeError:
                caught += 1
        return caught

    assert on_ranks(run) == [4, 4]


@promise(
    "Wrong arguments raise `ValueError` or `TypeError`",
    here="more",
    note="`UsageError`, which is a `RuntimeError` as well; nothing was sent",
)
def test_wrong_arguments() -> None:
    def run(rank: int) -> float:
        with pytest.raises(TypeError) as caught:
            dist.all_reduce("text")
        assert isinstance(caught.value, dist.UsageError)
        with pytest.raises(ValueError, match="=9 is not in group"):
            dist.broadcast(np.ones(1), 9)
        x = np.ones(1)
        dist.all_reduce(x)
        return float(x[0])

    assert on_ranks(run) == [2.0, 2.0]


@promise(
    "A rank that leaves while others wait for it is an error of theirs",
    here="more",
    note="at once, and it names the rank",
)
def test_a_rank_that_leaves() -> None:
    def run(rank: int) -> None:
        if rank == 0:
            with pytest.raises(dist.DistNetworkError) as caught:
                dist.barrier()
            assert getattr(caught.value, "peer", None) == 1

    on_ranks(run)
