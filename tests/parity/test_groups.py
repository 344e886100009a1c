"""Groups of some of the ranks: making them, numbering, splitting and shrinking."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise


def total(group: dist.ProcessGroup | None = None) -> int:
    """The sum of 10 to the power of the ranks of the group: its members as digits."""
    x = np.array([10 ** dist.get_rank()])
    dist.all_reduce(x, group=group)
    return int(x[0])


@promise("Collectives are on the default group unless `group` names another one")
def test_ops_are_on_the_default_group() -> None:
    def run(rank: int) -> tuple[int, int | None]:
        group = dist.new_group([0, 1])
        return total(), total(group) if rank < 2 else None

    assert on_ranks(run, 3) == [(111, 11), (111, 11), (111, None)]


@promise("`new_group` makes a group of the given ranks; all ranks of the job call it")
def test_new_group() -> None:
    def run(rank: int) -> int | None:
        group = dist.new_group([0, 2])
        return None if rank == 1 else total(group)

    assert on_ranks(run, 3) == [101, None, 101]


@promise("`new_group` without ranks makes a group of all")
def test_new_group_of_all() -> None:
    assert on_ranks(lambda _: total(dist.new_group())) == [11, 11]


@promise("`new_group` returns `GroupMember.NON_GROUP_MEMBER` on ranks that are not in it")
def test_new_group_outside() -> None:
    def run(rank: int) -> bool:
        return dist.new_group([0]) == dist.GroupMember.NON_GROUP_MEMBER

    assert on_ranks(run) == [False, True]


@promise("A collective on a group that this rank is not in does nothing but warn")
def test_an_op_outside() -> None:
    def run(rank: int) -> object:
        group = dist.new_group([0])
        x = np.ones(1)
        work = dist.all_reduce(x, group=group, async_op=True)
        assert x[0] == 1
        return work if rank == 1 else None if work is None else work.wait()

    with pytest.warns(UserWarning, match="rank 1, which is not"):
        assert on_ranks(run) == [True, None]


@promise("`new_group` sorts the ranks unless `sort_ranks=False` keeps the order given")
def test_sort_ranks() -> None:
    def run(rank: int) -> tuple[int, int]:
        return (
            dist.get_rank(dist.new_group([1, 0])),
            dist.get_rank(dist.new_group([1, 0], sort_ranks=False)),
        )

    assert on_ranks(run) == [(0, 1), (1, 0)]


@promise("`new_group(use_local_synchronization=True)` is called by the members alone")
def test_local_synchronization() -> None:
    def run(rank: int) -> int | None:
        if rank == 2:
            return None
        return total(dist.new_group([0, 1], use_local_synchronization=True))

    assert on_ranks(run, 3) == [11, 11, None]


@promise("`timeout` of `new_group` limits the ops of that group")
def test_timeout_of_a_group() -> None:
    def run(rank: int) -> None:
        group = dist.new_group(timeout=timedelta(seconds=3))  # also to make it in
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 1"):
                dist.barrier(group)

    on_ranks(run)


@promise("`backend` of `new_group` is that group's backend; without it that of the default group")
def test_backend_of_a_group() -> None:
    def run(rank: int) -> tuple[str, str]:
        given = dist.new_group(backend="distdbg")
        return dist.get_backend(given), dist.get_backend(dist.new_group())

    assert on_ranks(run) == [("distdbg", "gloo")] * 2


@promise("`group_desc` of `new_group` describes the group")
def test_group_desc() -> None:
    def run(rank: int) -> tuple[str, str]:
        assert dist.group.WORLD is not None
        return dist.group.WORLD.group_desc, dist.new_group(group_desc="dp").group_desc

    assert on_ranks(run) == [("default_pg", "dp")] * 2


@promise(
    "`new_group` is called with the same ranks in the same order everywhere",
    here="stricter",
    note="calls that differ are an error on the ranks that wait for the group",
)
def test_groups_in_another_order() -> None:
    def run(rank: int) -> None:
        with pytest.raises(RuntimeError, match="new_group"):
            dist.new_group([0, 1] if rank == 0 else [1, 0], sort_ranks=False)

    on_ranks(run)


@promise("Ranks that do not exist, or are named twice, are refused")
@pytest.mark.parametrize("ranks", [[0, 7], [0, 0], [-1], []])
def test_impossible_ranks(ranks: list[int]) -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="new_group"):
            dist.new_group(ranks)

    on_ranks(run)


@promise("Ops on different groups may overlap, when every rank starts them in one order")
def test_groups_overlap() -> None:
    def run(rank: int) -> float:
        x, y = np.ones(1), np.ones(1)
        works = [dist.all_reduce(a, group=dist.new_group(), async_op=True) for a in (x, y)]
        for work in works:
            assert work is not None
            work.wait()
        return float(x[0] + y[0])

    assert on_ranks(run) == [4.0, 4.0]


@promise("`get_group_rank` translates a rank of the job to a rank of the group")
def test_get_group_rank() -> None:
    def run(rank: int) -> int | None:
        group = dist.new_group([1, 2])
        return dist.get_group_rank(group, 2) if rank else None

    assert on_ranks(run, 3) == [None, 1, 1]


@promise("`get_group_rank` of a rank that is not in the group raises")
def test_get_group_rank_outside() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0])
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 1 is not in"):
                dist.get_group_rank(group, 1)

    on_ranks(run)


@promise("`get_global_rank` translates a rank of the group to a rank of the job")
def test_get_global_rank() -> None:
    def run(rank: int) -> int | None:
        group = dist.new_group([1, 2])
        return dist.get_global_rank(group, 0) if rank else None

    assert on_ranks(run, 3) == [None, 1, 1]


@promise("`get_global_rank` of a rank that the group does not have raises")
def test_get_global_rank_outside() -> None:
    def run(rank: int) -> None:
        with pytest.raises(RuntimeError, match="2 is not a rank"):
            dist.get_global_rank(dist.new_group(), 2)

    on_ranks(run)


@promise("`get_process_group_ranks` lists the ranks of a group, all for `None`")
def test_get_process_group_ranks() -> None:
    def run(rank: int) -> tuple[list[int], list[int] | None]:
        group = dist.new_group([0, 2])
        mine = dist.get_process_group_ranks(group) if rank != 1 else None
        return dist.get_process_group_ranks(None), mine

    assert on_ranks(run, 3) == [([0, 1, 2], [0, 2]), ([0, 1, 2], None), ([0, 1, 2], [0, 2])]


@promise("`get_process_group_ranks` of a group that this rank is not in raises `KeyError`")
def test_get_process_group_ranks_outside() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0])
        if rank == 1:
            with pytest.raises(KeyError, match="not in the given group"):
                dist.get_process_group_ranks(group)

    on_ranks(run)


@promise("`new_subgroups` cuts the ranks into groups of `group_size`; returns one's own and all")
def test_new_subgroups() -> None:
    def run(rank: int) -> int:
        mine, every = dist.new_subgroups(2)
        assert len(every) == 2
        return total(mine)

    assert on_ranks(run, 4) == [11, 11, 1100, 1100]


@promise("`new_subgroups` refuses a size that does not divide the ranks")
def test_new_subgroups_of_a_wrong_size() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="does not divide"):
            dist.new_subgroups(2)

    on_ranks(run, 3)


@promise(
    "`new_subgroups` without `group_size` needs GPUs to count, and raises `ValueError` without"
)
def test_new_subgroups_without_a_size() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="group_size"):
            dist.new_subgroups()

    on_ranks(run)


@promise("`new_subgroups_by_enumeration` makes a group for each list of ranks")
def test_new_subgroups_by_enumeration() -> None:
    def run(rank: int) -> int:
        mine, every = dist.new_subgroups_by_enumeration([[0, 2], [1]])
        assert len(every) == 2
        return total(mine)

    assert on_ranks(run, 3) == [101, 10, 101]


@promise("`new_subgroups_by_enumeration` refuses a rank that is in two lists")
def test_a_rank_in_two_lists() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="rank 0 is in two"):
            dist.new_subgroups_by_enumeration([[0, 1], [0]])

    on_ranks(run)


@promise("`new_subgroups_by_enumeration` gives `None` to a rank that is in no list")
def test_a_rank_in_no_list() -> None:
    def run(rank: int) -> bool:
        return dist.new_subgroups_by_enumeration([[0]])[0] is None

    assert on_ranks(run) == [False, True]


@promise(
    "`split_group` splits a group by lists of its ranks",
    here="more",
    note="with every backend, torch's needs NCCL's",
)
def test_split_group() -> None:
    def run(rank: int) -> int | None:
        part = dist.split_group(split_ranks=[[0, 2], [1]])
        assert part is not None
        return total(part)

    assert on_ranks(run, 3) == [101, 10, 101]


@promise("`split_group` gives `None` to a rank that is in no list")
def test_split_group_outside() -> None:
    assert on_ranks(lambda _: dist.split_group(split_ranks=[[0]]) is None) == [False, True]


@promise(
    "`shrink_group` makes a group without some ranks; the ranks that stay call it",
    here="more",
    note="with every backend, torch's needs NCCL's",
)
def test_shrink_group() -> None:
    def run(rank: int) -> int | None:
        return None if rank == 1 else total(dist.shrink_group([1]))

    assert on_ranks(run, 3) == [11, None, 11]


@promise("`shrink_group` refuses a rank that excludes itself")
def test_shrink_group_by_the_excluded() -> None:
    def run(rank: int) -> None:
        if rank == 1:
            with pytest.raises(RuntimeError, match="excluded itself"):
                dist.shrink_group([1])

    on_ranks(run)


@promise("A `ProcessGroup` knows its `rank()`, `size()`, `name()` and `group_name`")
def test_what_a_group_knows() -> None:
    def run(rank: int) -> tuple[int, int, str, bool]:
        group = dist.new_group()
        assert dist.group.WORLD is not None
        other = dist.group.WORLD.group_name
        return group.rank(), group.size(), group.name(), group.group_name != other

    assert on_ranks(run) == [(0, 2, "gloo", True), (1, 2, "gloo", True)]


@promise("`set_timeout` of a group changes the limit of its ops")
def test_set_timeout_of_a_group() -> None:
    def run(rank: int) -> None:
        group = dist.new_group()
        group.set_timeout(timedelta(milliseconds=50))
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 1"):
                dist.barrier(group)

    on_ranks(run)


@promise("`get_group_store` is a store that the ranks of a group share")
def test_get_group_store() -> None:
    def run(rank: int) -> bytes:
        store = dist.new_group().get_group_store()
        if rank == 0:
            store.set("mine", "x")
        return store.get("mine")

    assert on_ranks(run) == [b"x", b"x"]
