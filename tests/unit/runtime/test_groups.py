"""Making, asking about, and leaving groups."""

from __future__ import annotations

import threading
from datetime import timedelta

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError, RendezvousError, UsageError
from distdbg.runtime.process.world import World, current, use
from distdbg.runtime.store import HashStore
from tests.support.store_ranks import REFERENCE, register_reference, run_store_ranks


def total(group: dist.ProcessGroup | None, rank: int) -> int:
    x = np.array([10**rank])
    dist.all_reduce(x, group=group)
    return int(x[0])


def test_the_default_group_answers_questions() -> None:
    def run(rank: int) -> None:
        assert dist.is_initialized()
        assert dist.get_rank() == rank
        assert dist.get_world_size() == 3
        assert dist.get_backend() == REFERENCE
        assert dist.get_backend_config() == f"cpu:{REFERENCE}"
        assert dist.get_pg_count() == 1
        world = dist.group.WORLD
        assert world is not None
        assert world is dist.GroupMember.WORLD
        assert world.group_desc == "default_pg"
        assert world.group_name == "0"
        assert dist.get_process_group_ranks(None) == [0, 1, 2]
        assert dist.get_group_rank(world, 2) == dist.get_global_rank(world, 2) == 2

    run_store_ranks(run, 3)


def test_without_init_everything_says_how_to_get_it() -> None:
    with use(World()):
        assert not dist.is_initialized()
        assert dist.group.WORLD is None
        for ask in (dist.get_rank, dist.get_world_size, dist.barrier, dist.destroy_process_group):
            with pytest.raises(UsageError, match="init_process_group"):
                ask()
        with pytest.raises(UsageError, match="not been initialized"):
            dist.all_reduce(np.zeros(1))


def test_new_group_serves_its_members_and_warns_others() -> None:
    def run(rank: int) -> int:
        group = dist.new_group([2, 0], group_desc="evens")
        if rank == 1:
            outside: object = group
            assert outside == dist.GroupMember.NON_GROUP_MEMBER == -100
            assert dist.get_rank(group) == dist.get_world_size(group) == -1
            assert dist.all_reduce(np.zeros(1), group=group) is None
            with pytest.raises(UsageError):
                dist.get_backend(group)
            dist.destroy_process_group(group)
            return -1
        assert dist.get_process_group_ranks(group) == [0, 2]
        assert dist.get_group_rank(group, 2) == 1
        assert dist.get_global_rank(group, 1) == 2
        assert group.group_desc == "evens"
        with pytest.raises(UsageError, match="src=1 is not in group"):
            dist.broadcast(np.zeros(1), src=1, group=group)
        return total(group, rank)

    with pytest.warns(UserWarning, match="all_reduce was called on rank 1, which is not"):
        assert run_store_ranks(run, 3) == [101, -1, 101]


def test_new_group_keeps_the_given_order_when_asked() -> None:
    def run(rank: int) -> int:
        return dist.get_rank(dist.new_group([2, 0, 1], sort_ranks=False))

    assert run_store_ranks(run, 3) == [1, 2, 0]


def test_groups_made_by_their_members_alone_do_not_collide() -> None:
    def run(rank: int) -> list[int]:
        low, high = [0, 1], [2, 3]
        ours = low if rank in low else high
        first = dist.new_group(ours, use_local_synchronization=True)
        second = dist.new_group(ours, use_local_synchronization=True)
        if rank == 0:  # the others do not take part
            alone = dist.new_group([0], use_local_synchronization=True)
            assert total(alone, rank) == 1
        everyone = dist.new_group()
        assert first.group_name != second.group_name
        return [total(first, rank), total(second, rank), total(everyone, rank)]

    assert run_store_ranks(run, 4) == [[11, 11, 1111]] * 2 + [[1100, 1100, 1111]] * 2


def test_new_subgroups_cut_the_ranks_in_order() -> None:
    def run(rank: int) -> int:
        mine, every = dist.new_subgroups(2)
        assert len(every) == 2
        return total(mine, rank)

    assert run_store_ranks(run, 4) == [11, 11, 1100, 1100]


def test_new_subgroups_by_enumeration() -> None:
    def run(rank: int) -> int:
        mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        with pytest.raises(UsageError, match="rank 0 is in two"):
            dist.new_subgroups_by_enumeration([[0, 1], [0, 2]])
        with pytest.raises(UsageError, match="does not divide"):
            dist.new_subgroups(3)
        return total(mine, rank)

    assert run_store_ranks(run, 4) == [101, 1010, 101, 1010]


def test_split_group_takes_group_ranks_of_the_parent() -> None:
    def run(rank: int) -> int | None:
        parent = dist.new_group([1, 2, 3])
        if rank == 0:
            return None
        part = dist.split_group(parent, [[0, 2]])
        return None if part is None else total(part, rank)

    assert run_store_ranks(run, 4) == [None, 1010, None, 1010]


def test_shrink_group_replaces_the_default_group() -> None:
    def run(rank: int) -> tuple[int, int] | None:
        other = dist.new_group([0, 1])
        if rank == 1:
            with pytest.raises(UsageError, match="excluded itself"):
                dist.shrink_group([1])
            return None
        made = dist.shrink_group([1])
        assert dist.group.WORLD is made
        if rank == 0:
            with pytest.raises(UsageError, match="was destroyed"):
                dist.all_reduce(np.zeros(1), group=other)
        return dist.get_rank(), total(None, dist.get_rank())

    assert run_store_ranks(run, 3) == [(0, 11), None, (1, 11)]


def test_shrink_group_of_a_subgroup_leaves_the_default_group() -> None:
    def run(rank: int) -> int | None:
        group = dist.new_group([1, 2, 3])
        made = dist.shrink_group([1], group) if rank in (1, 3) else None
        assert dist.get_world_size() == 4
        return None if made is None else total(made, rank)

    assert run_store_ranks(run, 4) == [None, 1010, None, 1010]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [([], "empty"), ([0, 0], "twice"), ([0, 5], "rank 5"), ([-1], "rank -1")],
)
def test_new_group_refuses_impossible_ranks(ranks: list[int], message: str) -> None:
    def run(rank: int) -> None:
        with pytest.raises(UsageError, match=message):
            dist.new_group(ranks)

    run_store_ranks(run, 2)


def test_a_destroyed_group_says_so() -> None:
    def run(rank: int) -> None:
        group = dist.new_group()
        dist.destroy_process_group(group)
        with pytest.raises(UsageError, match="was destroyed"):
            dist.all_reduce(np.zeros(1), group=group)
        with pytest.raises(UsageError, match="destroyed before"):
            dist.destroy_process_group(group)
        assert total(None, rank) == 11

    run_store_ranks(run, 2)


def test_init_again_after_destroy_ten_times_on_one_store() -> None:
    store = HashStore()

    def run(rank: int) -> list[int]:
        totals = []
        for _ in range(10):
            dist.init_process_group(REFERENCE, store=store, rank=rank, world_size=2)
            totals.append(total(dist.new_group(), rank))
            work = dist.all_reduce(np.zeros(1), async_op=True)
            assert work is not None
            work.get_future().wait()
            dist.destroy_process_group(dist.group.WORLD)
            assert not dist.is_initialized()
        return totals

    before = threading.active_count()
    assert run_store_ranks(run, 2, is_initialized=False) == [[11] * 10] * 2
    assert threading.active_count() == before


def test_a_rank_that_does_not_come_is_named() -> None:
    register_reference()
    store = HashStore()
    with use(World()) as world:
        with pytest.raises(RendezvousError) as caught:
            dist.init_process_group(
                REFERENCE, store=store, rank=1, world_size=4, timeout=timedelta(seconds=0.05)
            )
        assert caught.value.joined == [1]
        assert caught.value.missing == [0, 2, 3]
        assert caught.value.expected == 4
        assert world.default is None


def test_init_refuses_contradictions() -> None:
    store = HashStore()
    with use(World()):
        with pytest.raises(UsageError, match="init_method or store"):
            dist.init_process_group("gloo", "env://", store=store, rank=0, world_size=1)
        with pytest.raises(UsageError, match="world_size"):
            dist.init_process_group("gloo", store=store, rank=0)
        with pytest.raises(UsageError, match="rank must be"):
            dist.init_process_group("gloo", store=store, rank=1, world_size=1)
        with pytest.raises(ConfigError, match="'xccl' is not available here; available: gloo"):
            dist.init_process_group("xccl", store=store, rank=0, world_size=1)
        with pytest.raises(UsageError, match="unknown backend 'foo'"):
            dist.init_process_group("foo", store=store, rank=0, world_size=1)
        register_reference()
        dist.init_process_group(REFERENCE, store=store, rank=0, world_size=1)
        with pytest.raises(UsageError, match="called twice"):
            dist.init_process_group(REFERENCE, store=store, rank=0, world_size=1)
        dist.destroy_process_group()


def test_a_world_is_of_the_thread_that_uses_it() -> None:
    outer = current()
    with use(World()) as inner:
        assert current() is inner
        seen: list[World] = []
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
        assert seen[0] is not inner
    assert current() is outer


def test_a_local_rank_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "x")
    with pytest.raises(ConfigError, match="LOCAL_RANK='x' is not valid"):
        dist.get_node_local_rank()


def test_a_group_has_one_name_in_repr_and_in_errors() -> None:
    def program() -> list[str]:
        described = dist.new_group(group_desc="dp")
        works = [dist.barrier(described, async_op=True), dist.barrier(async_op=True)]
        for work in works:
            assert work is not None
            work.wait()
        return [repr(dist.group.WORLD), repr(described), *map(repr, works)]

    (world, described, work, other) = dist.run_threads(program, 1, timeout_s=60)[0]
    assert world.startswith("<ProcessGroup 'world' rank 0 of 1 (")
    assert described.startswith("<ProcessGroup 'dp' rank 0 of 1 (")
    assert work == "<Work barrier on group 'dp', completed>"
    assert other == "<Work barrier on group 'world', completed>"
