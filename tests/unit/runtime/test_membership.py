"""Ranks that make different groups, or in another order: each learns it, and nobody hangs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError
from distdbg.runtime.groups import membership
from distdbg.runtime.groups.membership import Creation


def words(rank: int, ranks: list[int], line: int = 8) -> dict[str, Any]:
    return {
        "rank": rank,
        "ranks": ranks,
        "name": "3",
        "function": "new_group",
        "site": f"/a/train.py:{line} (main)",
    }


class Fleeting(dist.HashStore):
    """Rank 1 goes on as soon as somebody has seen that it waits."""

    def check(self, keys: Sequence[str]) -> bool:
        is_there = super().check(keys)
        if list(keys) == ["waits/1"]:
            self.delete_key("waits/1")
        return is_there

    def get(self, key: str) -> bytes:
        assert super().check([key]), f"{key} is gone, and get would wait until rank 1 waits again"
        return super().get(key)


def test_a_rank_that_goes_on_while_another_looks_at_it_holds_nobody() -> None:
    store = Fleeting()
    store.set("waits/1", json.dumps(words(1, [0, 1]) | {"missing": [0]}))
    creation = Creation(store, "3", 0, [0, 1], "new_group", "/a/train.py:8 (main)", set())
    for _ in range(2):
        creation.look([1])
    store.delete_key("waits/1")
    creation.look([1])
    assert store.list_keys() == ["waits/0"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds a difference waits for all that are involved, however slow they are."""
    monkeypatch.setattr(membership, "_SETTLE_S", 30.0)


def errors_of(make: Callable[[int], Any], size: int = 3) -> list[MismatchError]:
    """What each rank gets; the default group is good afterwards."""

    def run() -> MismatchError:
        dist.barrier()
        started = time.monotonic()
        with pytest.raises(MismatchError) as caught:
            make(dist.get_rank())
        assert time.monotonic() - started < 30
        x = np.ones(1)
        dist.all_reduce(x)
        assert x[0] == size
        return caught.value

    return dist.run_threads(run, size, timeout_s=60.0)


def test_different_ranks() -> None:
    errors = errors_of(lambda rank: dist.new_group([0, 1] if rank == 1 else [0, 1, 2]))
    assert {error.what for error in errors} == {
        "new_group #1 differs between ranks: group 0-2 on ranks 0,2, group 0-1 on rank 1"
    }
    assert all(error.ranks == [1] for error in errors)
    assert f"test_membership.py:{test_different_ranks.__code__.co_firstlineno + 1}" in str(
        errors[0]
    )


def test_a_rank_that_is_no_member_of_its_own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    others_have_come = threading.Semaphore(0)
    compare = Creation.compare

    def come(self: Creation, everybody: Sequence[int]) -> None:
        compare(self, everybody)
        others_have_come.release()

    def make(rank: int) -> None:
        if rank == 1:  # the first to come would not wait for anybody
            for _ in (0, 2):
                assert others_have_come.acquire(timeout=30), "ranks 0 and 2 have not come"
        dist.new_group([0, 2] if rank == 1 else [0, 1, 2])

    monkeypatch.setattr(Creation, "compare", come)
    errors = errors_of(make)
    assert all(error.ranks == [1] for error in errors)


def test_groups_in_another_order() -> None:
    def make(rank: int) -> None:
        for ranks in [[1, 2], [0, 1]] if rank == 1 else [[0, 1], [1, 2]]:
            dist.new_group(ranks)

    def run() -> str:
        try:
            make(dist.get_rank())
        except MismatchError as error:
            return error.what
        return ""

    seen = dist.run_threads(run, 2 + 1, timeout_s=60.0)
    assert all("differs between ranks" in what for what in seen[:2])


def test_ranks_in_another_order_where_they_are_not_sorted() -> None:
    def make(rank: int) -> None:
        dist.new_group([0, 1] if rank == 0 else [1, 0], sort_ranks=False)

    assert all("in this order" in str(error) for error in errors_of(make, 2))


def test_subgroups_of_different_sizes() -> None:
    def run() -> str:
        rank = dist.get_rank()
        try:
            dist.new_subgroups(2 if rank < 3 else 4)
        except MismatchError as error:
            return error.what
        finally:
            dist.barrier()
        return ""

    seen = dist.run_threads(run, 4, timeout_s=60.0)
    # Ranks 0 and 1 may have made their group, which is as they meant it, before rank 3 came.
    assert all("new_group #1 differs" in what for what in seen[2:]), seen


def test_a_rank_that_compares_after_another_gave_up_learns_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        membership, "_STAY_S", 0.0
    )  # all ranks are this thread: nobody reads beside it
    store = dist.HashStore()

    def creation(name: str, rank: int, ranks: list[int]) -> Creation:
        return Creation(store, name, rank, ranks, "new_group", f"/a/train.py:{rank} (main)", set())

    for rank in (0, 1):
        creation("1", rank, [0, 1]).compare(range(3))
    seconds = [creation("2", rank, [0, 1, 2]) for rank in (0, 1)]
    seconds[0].compare(range(3))
    caught = []
    with pytest.raises(MismatchError) as odd:
        creation("1", 2, [0, 1, 2]).compare(range(3))
    caught.append(odd.value)
    with pytest.raises(MismatchError) as waiting:
        seconds[0].look([1, 2])
    caught.append(waiting.value)
    seconds[1].compare(range(3))  # only now: what it would wait for has ended already
    assert dist.PrefixStore("2/", store).get("all_here") == membership.DIFFER
    caught.append(seconds[1].given_up())
    assert {error.what for error in caught} == {
        "new_group #1 differs between ranks: group 0-1 on ranks 0-1, group 0-2 on rank 2"
    }
    assert all(error.ranks == [2] for error in caught)


def test_members_alone_in_another_order_wait_in_a_cycle() -> None:
    def make(rank: int) -> None:
        for ranks in [[0, 1], [1, 0]] if rank == 0 else [[1, 0], [0, 1]]:
            dist.new_group(ranks, use_local_synchronization=True, sort_ranks=False)

    errors = errors_of(make, 2)
    assert errors[0].what == errors[1].what
    assert "ranks 0-1 are deadlocked, each in another group" in errors[0].what


def test_three_ranks_in_a_cycle() -> None:
    def make(rank: int) -> None:
        dist.new_group(sorted([rank, (rank + 1) % 3]), use_local_synchronization=True)

    for error in errors_of(make, 3):
        assert error.ranks == [0, 1, 2]


def test_legal_programs_stay_legal() -> None:
    def run() -> list[float]:
        rank = dist.get_rank()
        works = [dist.all_reduce(np.ones(1 << 16), async_op=True) for _ in range(3)]
        whole = dist.new_group(None if rank else [2, 1, 0])
        pair = dist.new_group([1, 0] if rank == 2 else [0, 1])
        sums = []
        for group in (whole, pair):
            x = np.ones(1)
            if isinstance(group, dist.ProcessGroup):
                dist.all_reduce(x, group=group)
            sums.append(float(x[0]))
        if rank != 1:
            dist.new_group([0, 2], use_local_synchronization=True)
        for work in works:
            assert work is not None
            work.wait()
        return sums

    assert dist.run_threads(run, 3, timeout_s=60.0) == [[3.0, 2.0], [3.0, 2.0], [3.0, 1.0]]


def test_a_rank_that_is_only_late_is_waited_for() -> None:
    def run() -> int:
        if dist.get_rank() == 0:
            time.sleep(0.7)  # longer than others take to look for a cycle, several times
        first = dist.new_group([0, 1], use_local_synchronization=True)
        return dist.new_group(timeout=timedelta(seconds=60)).size() + first.size()

    assert dist.run_threads(run, 2, timeout_s=60.0) == [4, 4]
