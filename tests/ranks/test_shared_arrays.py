"""Shared arrays: the same bits as the ordinary way, whatever is mixed, and nothing left of the dead."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import PeerLost

DTYPES = [np.float32, np.float64, np.float16, np.int32, np.uint8, ml_dtypes.bfloat16]
#: Above what goes in place, also where it is cut, and not a multiple of anything.
COUNTS = [550_007, 700_001, 1 << 20]
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


def compare_both_ways(seed: int, cases: int) -> int:
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
        values = own.standard_normal(sum(sizes.values())) * 10.0 ** own.integers(
            -3, 3, sum(sizes.values())
        )
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


# Each kind once.
@pytest.mark.parametrize("seed", [0, 3, 6])
def test_results_have_the_bits_of_the_ordinary_way(
    ranks: Callable[..., list[Any]], seed: int
) -> None:
    assert all(ranks(compare_both_ways, 3, seed=seed, cases=3))


@pytest.mark.slow
def test_many_random_ops_have_the_bits_of_the_ordinary_way(ranks: Callable[..., list[Any]]) -> None:
    assert all(ranks(compare_both_ways, 4, seed=17, cases=90))


def mix(brings_shared: list[list[bool]]) -> list[int]:
    """Ops of one shape; which ranks bring a shared array to each. How many had gone in place after each."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    count = 100_003
    shared, ordinary = dist.empty(count, np.int64), np.empty(count, np.int64)
    counts = []
    for number, by_rank in enumerate(brings_shared):
        x = shared if by_rank[rank] else ordinary
        x[:] = np.arange(count) + rank + number
        dist.all_reduce(x)
        assert (x == size * (np.arange(count) + number) + size * (size - 1) // 2).all(), number
        counts.append(in_place_ops())
    dist.destroy_process_group()
    return counts


def test_one_ordinary_array_sends_all_the_ordinary_way(ranks: Callable[..., list[Any]]) -> None:
    all_shared, one_not, none = [True] * 3, [True, False, True], [False] * 3
    brought = [all_shared] * 3 + [one_not] * 2 + [all_shared, none, all_shared, one_not, all_shared]
    assert ranks(mix, 3, brings_shared=brought) == [[0, 1, 2, 2, 2, 3, 3, 4, 4, 5]] * 3


def ways_to_call() -> list[int]:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    xs = [dist.zeros(140_000, np.float32) for _ in range(4)]
    counts = [in_place_ops()]
    for step in range(3):
        for x in xs:
            x[:] = rank
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        for work in works:
            assert work is not None
            work.wait()
        assert all((x == size * (size - 1) / 2).all() for x in xs), step
    counts.append(in_place_ops())
    for x in xs:
        x[:] = rank
    dist.all_reduce_coalesced(xs)
    assert all((x == size * (size - 1) / 2).all() for x in xs)
    # Not contiguous, and a factor: both are copied for the op.
    wide = dist.empty((400, 400), np.float32)
    wide[:] = rank
    for _ in range(3):
        counts.append(in_place_ops())
        wide[:, ::2] = rank
        dist.all_reduce(wide[:, ::2])
        assert (wide[:, ::2] == size * (size - 1) / 2).all()
        assert (wide[:, 1::2] == rank).all()
        xs[0][:] = rank
        dist.all_reduce(xs[0], op=dist.make_premul_sum(2.0))
        assert (xs[0] == size * (size - 1)).all()
    counts.append(in_place_ops())
    dist.destroy_process_group()
    return counts


def test_asynchronous_ops_go_in_place_and_stand_ins_do_not(
    ranks: Callable[..., list[Any]],
) -> None:
    for counts in ranks(ways_to_call, 2):
        assert counts[1] - counts[0] >= 8
        assert counts[-1] == counts[2]


def on_other_ways(transport: str, limit: str) -> int:
    os.environ["DISTDBG_TRANSPORT"] = transport
    os.environ["DISTDBG_SHARED_NBYTES"] = limit
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    x = dist.empty((300, 500), np.float64)
    for _ in range(3):
        x[:] = rank
        dist.all_reduce(x)
        assert (x == size * (size - 1) / 2).all()
    dist.destroy_process_group()
    return in_place_ops()


@pytest.mark.parametrize(("transport", "limit"), [("tcp", "10000000"), ("auto", "0")])
def test_elsewhere_they_are_ordinary_arrays(
    ranks: Callable[..., list[Any]], transport: str, limit: str
) -> None:
    assert ranks(on_other_ways, 2, transport=transport, limit=limit) == [0, 0]


def without_room_for_a_peer() -> int:
    rank = int(os.environ["RANK"])
    os.environ["DISTDBG_SHARED_NBYTES"] = str(1 << 40 if rank == 0 else 10 << 20)
    dist.init_process_group()
    x = dist.empty(100_000, np.float64)
    if rank == 1:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
    for _ in range(4):
        x[:] = rank
        dist.all_reduce(x)
        assert (x == 1).all()
    # What needs rank 0 alone to map its peer.
    before, half = in_place_ops(), np.empty(50_000)
    for _ in range(3):
        dist.scatter(half, np.split(x, 2) if rank == 1 else None, src=1)
        assert (half == 1).all()
    after = in_place_ops()
    dist.destroy_process_group()
    return 10 * before + after


def test_a_peer_that_cannot_be_mapped_is_served_through_the_slots(
    ranks: Callable[..., list[Any]],
) -> None:
    assert ranks(without_room_for_a_peer, 2) == [3, 3]


def mapped_heaps() -> int:
    """How many shared heaps this process has mapped, its own included."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:distdbg-arrays" in line})


def one_dies() -> list[int] | None:
    dist.init_process_group(timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    x = dist.zeros(200_000, np.float32)
    rest = dist.new_group([0, 2])
    for _ in range(2):
        dist.all_reduce(x)
    before = mapped_heaps()
    assert before == size
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost):
        dist.all_reduce(x)
    after = mapped_heaps()
    x[:] = rank
    for _ in range(3):
        dist.all_reduce(x, group=rest)
    with_rest = mapped_heaps()
    dist.destroy_process_group()
    return [after, with_rest, mapped_heaps()]


def test_nothing_of_a_dead_rank_stays_mapped(ranks: Callable[..., list[Any]]) -> None:
    results = ranks(one_dies, 3, expect_exit={1: -signal.SIGKILL})
    assert [results[0], results[2]] == [[1, 2, 1], [1, 2, 1]]


def make_and_drop() -> tuple[int, int, list[int]]:
    os.environ["DISTDBG_SHARED_NBYTES"] = str(1 << 20)
    dist.init_process_group()
    for _ in range(50):
        x = dist.empty(100_000, np.float32)
        x[:] = 1
        dist.all_reduce(x)
    facts = dist.shared_arrays()
    pid = os.fork()
    if pid == 0:
        x[:] = 7  # its own copy
        del x
        os._exit(0)
    os.waitpid(pid, 0)
    kept = [int(x.min()), int(x.max())]
    dist.destroy_process_group()
    return facts.count, facts.most_nbytes, kept


def test_memory_is_used_again_and_a_child_leaves_it_alone(ranks: Callable[..., list[Any]]) -> None:
    pages = -(-400_000 // 4096) * 4096
    assert ranks(make_and_drop, 2) == [[1, 2 * pages, [2, 2]]] * 2


def sum_on_threads() -> bool:
    rank, size = dist.get_rank(), dist.get_world_size()
    x = dist.empty(150_000, np.float32)
    for _ in range(3):
        x[:] = rank
        dist.all_reduce(x)
        assert (x == size * (size - 1) / 2).all()
    return True


def on_threads() -> int:
    assert dist.run_threads(sum_on_threads, 3) == [True] * 3
    return in_place_ops()


def test_ranks_that_are_threads_share_them_too(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(on_threads, 1) == [9]


def levels_off_and_different_calls() -> bool:
    os.environ["DISTDBG_DEBUG"] = "off"
    dist.init_process_group(timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    x, y = dist.zeros(150_000, np.float32), dist.zeros(75_000, np.float64)
    for _ in range(3):
        dist.all_reduce(x)
        dist.all_reduce(y)
    before = in_place_ops()
    # Of the same size and gates, and not compared: whatever comes out, nobody trusts what the other said.
    dist.all_reduce(x if rank else y)
    assert in_place_ops() == before
    dist.all_reduce(x)
    dist.destroy_process_group()
    return in_place_ops() == before + 1


def test_ranks_that_differ_and_are_not_compared_use_no_array_of_each_other(
    ranks: Callable[..., list[Any]],
) -> None:
    assert ranks(levels_off_and_different_calls, 2) == [True, True]
