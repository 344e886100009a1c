"""Shared arrays: the same bits as the ordinary way, whatever is brought together, and nothing left of the dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError, PeerLost
from distdbg.native import is_shared

DTYPES = [np.float32, np.float64, np.float16, np.int32, np.uint8, ml_dtypes.bfloat16]
#: Above what goes in place, also where it is cut, and not a multiple of anything.
COUNTS = [70_001, 300_007, 1 << 20]
#: Of one shape: one op to map the arrays of the others, and two in place, of which the second has put nothing
#: into slots.
TIMES = 3

Array = np.ndarray[Any, Any]


def in_place_ops() -> int:
    return dist.shared_arrays().ops


def shared_copy(x: Array, lead: int) -> Array:
    """A slice of a shared array that begins `lead` elements behind its beginning."""
    whole = dist.empty(x.size + lead, x.dtype)
    part = whole[lead:].reshape(x.shape)
    part[...] = x
    return part


def call(kind: str, group: Any, root: int, op: Any, arrays: dict[str, Array]) -> None:
    x, y = arrays["x"], arrays["y"]
    n, is_root = dist.get_world_size(group), dist.get_rank() == root
    match kind:
        case "all_reduce":
            dist.all_reduce(x, op=op, group=group)
        case "reduce":
            dist.reduce(x, dst=root, op=op, group=group)
        case "broadcast":
            dist.broadcast(x, src=root, group=group)
        case "all_gather":
            dist.all_gather_into_tensor(x, y, group=group)
        case "all_gather of its own place":
            block = x.size // n
            at = dist.get_rank(group) * block
            dist.all_gather_into_tensor(x, x[at : at + block], group=group)
        case "reduce_scatter":
            dist.reduce_scatter_tensor(y, x, op=op, group=group)
        case "all_to_all":
            dist.all_to_all_single(arrays["z"], x, group=group)
        case "gather":
            dist.gather(y, np.split(x, n) if is_root else None, dst=root, group=group)
        case "scatter":
            dist.scatter(y, np.split(x, n) if is_root else None, src=root, group=group)


KINDS = [
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather of its own place",
    "reduce_scatter", "all_to_all", "gather", "scatter",
]  # fmt: skip


def compare_both_ways(seed: int, cases: int, is_async: bool) -> int:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.group.WORLD, dist.new_group(list(range(size - 1, 0, -1))), dist.new_group([0])]
    alike, own = np.random.default_rng(seed), np.random.default_rng([seed, rank])
    went_in_place = 0
    for number in range(cases):
        kind = KINDS[(seed + number) % len(KINDS)]
        group = groups[0] if alike.random() < 0.7 else groups[1]
        dtype, count = np.dtype(alike.choice(DTYPES)), int(alike.choice(COUNTS))
        op = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX][alike.integers(3)]
        lead, root = int(alike.integers(0, 9)), int(alike.integers(1, size))
        if group is not groups[0] and rank == 0:
            continue
        n = dist.get_world_size(group)
        sizes = {"x": count // n * n, "y": count // n, "z": count // n * n}
        values = own.standard_normal(sum(sizes.values())) * 10.0 ** own.integers(-3, 3, sum(sizes.values()))
        start, filled = {}, 0
        for name, length in sizes.items():
            start[name] = values[filled : filled + length].astype(dtype)
            filled += length
        shared = {name: shared_copy(x, lead) for name, x in start.items()}
        before = in_place_ops()
        for _ in range(TIMES):
            ordinary = {name: x.copy() for name, x in start.items()}
            for name, x in start.items():
                shared[name][...] = x
            call(kind, group, root, op, ordinary)
            call(kind, group, root, op, shared)
            for name, x in ordinary.items():
                assert x.tobytes() == shared[name].tobytes(), (number, kind, dtype, count, name)
        if n > 1:
            assert in_place_ops() - before >= TIMES - 1, (number, kind, dtype, count, n)
            went_in_place += in_place_ops() - before
    del shared
    dist.destroy_process_group()
    assert dist.shared_arrays().count == 0
    return went_in_place


@pytest.mark.parametrize("seed", range(2))
def test_results_have_the_bits_of_the_ordinary_way(
    ranks: Callable[..., list[Any]], seed: int
) -> None:
    assert all(ranks(compare_both_ways, 3, seed=seed, cases=9, is_async=False))


@pytest.mark.slow
def test_many_random_ops_have_the_bits_of_the_ordinary_way(ranks: Callable[..., list[Any]]) -> None:
    assert all(ranks(compare_both_ways, 4, seed=17, cases=90, is_async=False))
