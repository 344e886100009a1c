"""What comes out: the same bits everywhere, by either way of copying, in little memory."""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist

SIZES = (1, 3, 1000, 70_001, 400_003)


def digests(seed: int) -> list[str]:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    random = np.random.default_rng(seed + rank)
    seen = []
    for count in SIZES:
        # Values of very different size: any other order of the sum gives other bits.
        x = (random.standard_normal(count) * 10.0 ** random.integers(-20, 20, count)).astype(
            np.float32
        )
        shares = np.empty(count * size, np.float32)
        dist.all_reduce(x)
        seen.append(hashlib.sha256(x.tobytes()).hexdigest())
        dist.all_gather_into_tensor(shares, x)
        assert (shares.reshape(size, count) == x).all()
    dist.destroy_process_group()
    return seen


def every_kind(single_copy: list[str], slot_nbytes: str) -> bool:
    # With small slots, arrays of moderate size already count as very large.
    os.environ["DISTDBG_SLOT_NBYTES"] = slot_nbytes
    os.environ["DISTDBG_SINGLE_COPY"] = single_copy[int(os.environ["RANK"])]
    dist.init_process_group()
    rank, n = dist.get_rank(), dist.get_world_size()
    for count in SIZES:
        x = np.full(count, rank + 1, np.int64)
        dist.all_reduce(x)
        assert (x == n * (n + 1) // 2).all()
        x = np.full(count, rank, np.int64)
        dist.broadcast(x, src=1)
        assert (x == 1).all()
        x = np.full(count, rank, np.int64)
        dist.reduce(x, dst=0)
        assert rank != 0 or (x == n * (n - 1) // 2).all()
        parts = [np.full(count, 10 * rank + peer, np.int64) for peer in range(n)]
        got = [np.zeros(count, np.int64) for _ in range(n)]
        dist.all_to_all(got, parts)
        assert all((got[peer] == 10 * peer + rank).all() for peer in range(n))
        dist.all_gather(got, parts[0])
        assert all((got[peer] == 10 * peer).all() for peer in range(n))
        out = np.zeros(count, np.int64)
        dist.reduce_scatter(out, parts)
        assert (out == sum(10 * peer + rank for peer in range(n))).all()
        dist.scatter(out, parts if rank == 0 else None, src=0)
        assert (out == rank).all()
        dist.gather(out, got if rank == 0 else None, dst=0)
        assert rank != 0 or all((got[peer] == peer).all() for peer in range(n))
        works = [dist.isend(x, (rank + 1) % n), dist.irecv(out, (rank - 1) % n)]
        for work in works:
            assert work is not None
            work.wait()
    dist.destroy_process_group()
    return True


def memory_for_64_mib(single_copy: str) -> int:
    os.environ["DISTDBG_SINGLE_COPY"] = single_copy
    dist.init_process_group()
    x = np.ones(16 << 20, np.float32)
    dist.all_reduce(x[:1024])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dist.all_reduce(x)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert x[-1] == dist.get_world_size()
    dist.destroy_process_group()
    return after - before


def test_sums_have_the_same_bits_on_all_ranks_and_in_all_runs(
    ranks: Callable[..., list[Any]],
) -> None:
    first = ranks(digests, 3, seed=5)
    assert first == [first[0]] * 3
    assert ranks(digests, 3, seed=5) == first


@pytest.mark.parametrize("slot_nbytes", ["4096", "524288"])
@pytest.mark.parametrize(
    "single_copy", [["1", "1", "1"], ["0", "0", "0"], ["1", "0", "1"]],
    ids=["direct", "staged", "one rank forces all to stage"],
)  # fmt: skip
def test_every_kind_of_op_is_right(
    ranks: Callable[..., list[Any]], single_copy: list[str], slot_nbytes: str
) -> None:
    assert ranks(every_kind, 3, single_copy=single_copy, slot_nbytes=slot_nbytes) == [True] * 3


@pytest.mark.parametrize("single_copy", ["1", "0"])
def test_64_mib_need_little_extra_memory(ranks: Callable[..., list[Any]], single_copy: str) -> None:
    for extra_kib in ranks(memory_for_64_mib, 2, single_copy=single_copy):
        assert extra_kib < 10 * 1024
