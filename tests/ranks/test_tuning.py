"""What was tuned changes how bytes move, and never a bit of a result; rank 0 decides for its group."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.net import between
from distdbg.runtime.tuning.profile import KINDS, TransportKind
from distdbg.runtime.tuning.trials import SIZES

#: Of float32: about one of each class of sizes.
COUNTS = (500, 10_001, 60_000, 500_009)
LARGE = 2_200_000


def random_rules(dice: random.Random) -> str:
    """DISTDBG_TUNE with something for everything."""
    rules = [
        f"{kind}@{nbytes}={dice.choice(list(TransportKind))}" for kind in KINDS for nbytes in SIZES
    ]
    rules.append(f"stream_nbytes={dice.choice(['64KiB', '1MiB', 'never'])}")
    rules.append(f"tile_nbytes={dice.choice(['32KiB', '100000', '1MiB', '8MiB'])}")
    rules.append(f"pushed_nbytes={dice.choice(['0', '100KiB', '1MiB', 'never'])}")
    rules.append(f"spins={dice.choice([1, 100, 1000])}")
    rules.append(f"yield_ns={dice.choice([0, 10_000, 1_000_000])}")
    return ",".join(rules)


def results(count: int, group: Any) -> Iterator[Any]:
    """What comes out of every kind, of values whose sum depends on the order of the ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dice = np.random.default_rng([rank, count])
    count = count // size * size
    given = (dice.standard_normal(count) * 10.0 ** dice.integers(-9, 9, count)).astype(np.float32)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT):
        x = given.copy()
        dist.all_reduce(x, op=op, group=group)
        yield x
        x = given.copy()
        dist.reduce(x, dst=size - 1, op=op, group=group)
        if rank == size - 1:
            yield x
        part = np.empty(count // size, np.float32)
        dist.reduce_scatter_tensor(part, given, op=op, group=group)
        yield part
    half = given.astype(np.float16)
    dist.all_reduce(half, group=group)
    yield half
    whole = np.empty(count * size, np.float32)
    dist.all_gather_into_tensor(whole, given, group=group)
    yield whole
    x = given.copy()
    dist.broadcast(x, src=1, group=group)
    yield x
    mine = np.empty(count, np.float32)
    dist.scatter(mine, list(whole.reshape(size, count)) if rank == 0 else None, src=0, group=group)
    yield mine
    all_of_them = [np.empty(count, np.float32) for _ in range(size)] if rank == 0 else None
    dist.gather(given, all_of_them, dst=0, group=group)
    yield from all_of_them or ()
    x = np.empty(count, np.float32)
    dist.all_to_all_single(x, given, group=group)
    yield x
    # Uneven: the longest block decides for all.
    splits = [[(i + 1) * (j + 1) * count // 40 for j in range(size)] for i in range(size)]
    takes = [row[rank] for row in splits]
    x = np.empty(sum(takes), np.float32)
    dist.all_to_all_single(x, given[: sum(splits[rank])], takes, splits[rank], group=group)
    yield x
    x = np.empty(count, np.float32)
    if rank % 2 == 0 and rank + 1 < size:
        dist.send(given, rank + 1, group=group)
    elif rank % 2:
        dist.recv(x, rank - 1, group=group)
        yield x


def digest(tune: str, counts: list[int]) -> str:
    os.environ["DISTDBG_TUNE"] = tune
    group = dist.new_group(list(range(dist.get_world_size())))
    seen = hashlib.sha256()
    for count in counts:
        for x in results(count, group):
            seen.update(x.tobytes())
    dist.destroy_process_group(group)
    return seen.hexdigest()


def same_bits(seeds: list[int], counts: list[int]) -> list[str]:
    dist.init_process_group()
    usual = digest("off", counts)
    wrong = []
    for seed in seeds:
        # Each rank would have it otherwise: that of rank 0 counts.
        tune = random_rules(random.Random(seed * 100 + dist.get_rank()))
        if digest(tune, counts) != usual:
            wrong.append(tune)
    dist.destroy_process_group()
    return wrong


def same_bits_on_two_hosts(seeds: list[int], counts: list[int]) -> list[str]:
    # Between hosts the algorithm, and with it the order of a fold, follows from the link: not measured anew.
    os.environ["DISTDBG_LINK"] = "25us,10Gb"
    # Rank 2 is on the host of rank 0; what rank 1 has kept is of another machine.
    hosts = ((0, 2), (1, 3))
    with patch.object(between, "find_hosts", lambda members, is_each_alone: hosts):
        return same_bits(seeds, counts)


@pytest.mark.parametrize("size", [2, 3])
def test_results_have_the_same_bits_whatever_was_tuned(
    ranks: Callable[..., list[Any]], size: int
) -> None:
    assert ranks(same_bits, size, seeds=[size], counts=list(COUNTS[:3])) == [[]] * size


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_results_have_the_same_bits_whatever_was_tuned_at_length(
    ranks: Callable[..., list[Any]], size: int
) -> None:
    counts = [*COUNTS, LARGE]
    got = ranks(same_bits, size, seeds=list(range(10, 14)), counts=counts, timeout=120.0)
    assert got == [[]] * size


@pytest.mark.slow
def test_hosts_that_were_tuned_differently_agree(ranks: Callable[..., list[Any]]) -> None:
    got = ranks(same_bits_on_two_hosts, 4, seeds=[3, 4], counts=list(COUNTS), timeout=120.0)
    assert got == [[]] * 4


def what_a_group_has() -> list[Any]:
    """With a variable of its own on each rank."""
    rank = int(os.environ["RANK"])
    os.environ["DISTDBG_TUNE"] = f"broadcast=direct,spins={rank + 7}" if rank == 0 else "off"
    dist.init_process_group()
    x = np.full(100_000, rank)
    dist.broadcast(x, 0)
    group = dist.group.WORLD
    assert group is not None
    engine: Any = group.engine
    topology = engine._plan_maker.__self__.topology  # what the group was made with
    dist.destroy_process_group()
    return [topology.ways.to_plain()["broadcast"], int(x[-1])]


def test_what_rank_0_says_counts_for_all(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(what_a_group_has, 3) == [[["direct"] * 4, 0]] * 3
