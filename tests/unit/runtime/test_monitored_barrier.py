"""monitored_barrier over one store in memory: who is named, what it costs, what it leaves behind."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

import distdbg as dist
from distdbg.errors import DistError, OpTimeout
from distdbg.runtime.members import store_barrier
from distdbg.runtime.members.barrier_tree import find_missing
from distdbg.runtime.members.store_barrier import ARITY, run_monitored_barrier
from distdbg.runtime.store import HashStore, Store
from distdbg.runtime.store.base import Value
from distdbg.runtime.store.timeouts import Timeout
from tests.support.store_ranks import run_store_ranks

SHORT = timedelta(seconds=0.3)


class CountingStore(Store):
    """Notes which keys each thread touches, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = HashStore()
        self.touched: dict[str, list[str]] = defaultdict(list)

    def _note(self, keys: Sequence[str]) -> None:
        self.touched[threading.current_thread().name].extend(keys)

    def set(self, key: str, value: Value) -> None:
        self._note([key])
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        self._note([key])
        return self.inner.get(key)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self._note(keys)
        return self.inner.multi_get(keys)

    def add(self, key: str, amount: int) -> int:
        self._note([key])
        return self.inner.add(key, amount)

    def check(self, keys: Sequence[str]) -> bool:
        self._note(keys)
        return self.inner.check(keys)

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        self._note([key])
        return self.inner.compare_set(key, expected, desired)

    def delete_key(self, key: str) -> bool:
        self._note([key])
        return self.inner.delete_key(key)

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        self._note(keys)
        self.inner.wait(keys, timeout)

    def list_keys(self) -> list[str]:
        return self.inner.list_keys()


def poll_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)  # a store tells nobody of a key


def look_when_all_have_come(monkeypatch: pytest.MonkeyPatch, came: Sequence[int]) -> None:
    """Whoever looks for the missing does so when all of `came` are there, however slow they are."""

    def look(
        size: int, arity: int, is_complete: Callable[[int], bool], is_here: Callable[[int], bool]
    ) -> tuple[list[int], list[int]]:
        poll_for(
            lambda: all(is_complete(rank) or is_here(rank) for rank in came),
            f"not all of {came} have come",
        )
        return find_missing(size, arity, is_complete, is_here)

    monkeypatch.setattr(store_barrier, "find_missing", look)


def barrier_error(timeout: timedelta = SHORT) -> OpTimeout:
    with pytest.raises(OpTimeout) as caught:
        dist.monitored_barrier(timeout=timeout)
    return caught.value


def test_all_come_again_and_again() -> None:
    def run(rank: int) -> None:
        for _ in range(3):
            dist.monitored_barrier(timeout=timedelta(seconds=60))

    for size in (1, 2, 3, 6, 21):
        run_store_ranks(run, size)


@pytest.mark.parametrize("wait_all_ranks", [False, True])
@pytest.mark.parametrize(
    ("size", "missing"),
    [(4, [1, 3]), (4, [0]), (9, [1]), (9, [8]), (9, [0, 1]), (22, [0, 1, 5, 21])],
)
def test_every_rank_that_came_names_all_that_are_missing_and_only_them(
    monkeypatch: pytest.MonkeyPatch, wait_all_ranks: bool, size: int, missing: list[int]
) -> None:
    look_when_all_have_come(monkeypatch, [rank for rank in range(size) if rank not in missing])

    def run(rank: int) -> str | None:
        if rank in missing:
            all_are_done.wait()  # who leaves is not missing
            return None
        all_came.wait()
        with pytest.raises(OpTimeout) as caught:
            dist.monitored_barrier(timeout=SHORT, wait_all_ranks=wait_all_ranks)
        error = caught.value
        assert error.kind == "monitored_barrier"
        assert error.missing == missing
        assert error.arrived == [rank for rank in range(size) if rank not in missing]
        assert error.seq == 1
        assert error.waited_s >= 0.29
        all_are_done.wait()
        return str(error)

    all_came = threading.Barrier(size - len(missing))
    all_are_done = threading.Barrier(size)
    texts = set(run_store_ranks(run, size))
    assert len(texts - {None}) == 1  # the same on all


def test_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    look_when_all_have_come(monkeypatch, [0, 1, 3])

    def run(rank: int) -> str:
        dist.barrier()
        text = str(barrier_error()) if rank != 2 else ""
        all_are_done.wait()
        return text

    all_are_done = threading.Barrier(4)
    first, place, *rest = run_store_ranks(run, 4)[0].splitlines()
    start = r"monitored_barrier #1 on group 'world' waited \d+\.\d+ s "
    assert re.fullmatch(start + "for rank 2 of 0-3; 3 of 4 ranks arrived", first)
    assert re.match(r"  rank 2: last op barrier #1 .* ended [\d.]+ [mu]?s ago", place)
    assert rest == [
        "  the group is still usable",
        "  hint: raise timeout= if the rank is only slow",
    ]


def test_a_late_rank_gets_the_verdict_at_once_and_the_group_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_when_all_have_come(monkeypatch, [0, 2, 3])
    given_up = threading.Barrier(4)

    def run(rank: int) -> tuple[list[int], str]:
        if rank == 1:
            given_up.wait()
            started = time.monotonic()
            error = barrier_error(timedelta(seconds=60))
            assert time.monotonic() - started < 30
        else:
            error = barrier_error()
            given_up.wait()
        dist.monitored_barrier(timeout=timedelta(seconds=60))
        return error.missing, error.details[-1]

    results = run_store_ranks(run, 4)
    assert [missing for missing, _ in results] == [[1]] * 4
    assert [last.startswith("this rank") for _, last in results] == [False, True, False, False]


def test_members_of_a_subgroup_are_named_by_their_global_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_when_all_have_come(monkeypatch, [0, 2])  # in the group

    def run(rank: int) -> list[int]:
        group = dist.new_group([1, 3, 5])
        if rank not in (1, 5):
            return []
        with pytest.raises(OpTimeout) as caught:
            dist.monitored_barrier(group, SHORT)
        assert "for rank 3 of 1,3,5; 2 of 3" in caught.value.what
        return caught.value.missing

    assert run_store_ranks(run, 6) == [[], [3], [], [], [], [3]]


@pytest.mark.parametrize("size", [2, 4, 9, 30])
def test_no_rank_touches_many_keys_of_a_barrier_however_large_the_group(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_barrier, "_SLICE_S", 60.0)  # each slice looks at all again
    store = CountingStore()

    def run(rank: int) -> list[str]:
        for _ in range(3):  # keys of the first are deleted in the second and third
            dist.monitored_barrier()
        mine = store.touched[threading.current_thread().name]
        return [key for key in mine if "monitored/1/" in key]

    touched = run_store_ranks(run, size, store=store, timeout_s=120)
    # The reports of its children, its own two keys, the verdict.
    assert max(len(set(keys)) for keys in touched) <= ARITY + 3
    # None is looked at more than a few times.
    assert max(len(keys) for keys in touched) <= 4 * (ARITY + 3)


def test_thousands_of_barriers_leave_the_store_as_they_found_it() -> None:
    store = HashStore()

    def run(rank: int) -> None:
        group = dist.group.WORLD
        assert group is not None
        most = 0
        for turn in range(2_000):
            run_monitored_barrier(group, 20)
            if turn % 100 == 0:
                most = max(most, count())
        assert most <= 12

    def count() -> int:
        return sum("monitored/" in key for key in store.list_keys())

    run_store_ranks(run, 2, store=store, timeout_s=120)
    assert count() <= 6


def test_keys_of_barriers_that_failed_go_with_the_next_good_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_when_all_have_come(monkeypatch, [0, 2])
    store = HashStore()

    def run(rank: int) -> None:
        for _ in range(5):
            if rank == 1:
                given_up.wait()
                barrier_error()
            else:
                barrier_error()
                given_up.wait()
        for _ in range(3):
            dist.monitored_barrier(timeout=timedelta(seconds=60))

    given_up = threading.Barrier(3)
    run_store_ranks(run, 3, store=store)
    left = {key.rpartition("monitored/")[2] for key in store.list_keys() if "monitored/" in key}
    assert left == {"7/verdict", "8/verdict", "8/here/0", "8/up/1", "8/up/2"}


def test_the_last_one_is_logged_with_its_delay(caplog: pytest.LogCaptureFixture) -> None:
    store = HashStore()

    def others_have_come() -> bool:
        keys = store.list_keys()
        return all(any(key.endswith(end) for key in keys) for end in ("1/here/0", "1/up/2"))

    def run(rank: int) -> None:
        if rank == 1:
            poll_for(others_have_come, "ranks 0 and 2 have not come")
            time.sleep(0.1)  # the delay that the log shall tell
        dist.monitored_barrier(timeout=timedelta(seconds=60))

    with caplog.at_level(logging.DEBUG, "distdbg"):
        run_store_ranks(run, 3, store=store)
    (line,) = [r.getMessage() for r in caplog.records if "arrived last" in r.getMessage()]
    reported = r"\[rank 0\] monitored_barrier #1 on group 'world': rank 1 arrived last, (\d+\.\d+)"
    found = re.match(reported, line)
    assert found is not None, line
    assert float(found[1]) >= 0.1


def test_a_store_that_fails_is_not_taken_for_a_missing_rank() -> None:
    class Failing(HashStore):
        def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
            if any("monitored/" in key for key in keys):
                raise dist.DistStoreError("the store is gone")
            super().wait(keys, timeout)

    def run(rank: int) -> str:
        with pytest.raises(DistError) as caught:
            dist.monitored_barrier(timeout=timedelta(seconds=60))
        return caught.value.what

    assert run_store_ranks(run, 2, store=Failing()) == ["the store is gone"] * 2


def test_a_barrier_that_all_came_to_needs_no_store_any_more() -> None:
    class Ending(HashStore):
        """Gone as soon as there is a verdict, like the process that served it."""

        def delete_key(self, key: str) -> bool:
            raise dist.DistNetworkError("the store is gone")

    def run(rank: int) -> None:
        dist.monitored_barrier(timeout=timedelta(seconds=60))

    run_store_ranks(run, 3, store=Ending())
