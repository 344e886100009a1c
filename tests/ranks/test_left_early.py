"""Small ops that a rank leaves before all have come: what it is told later, and by what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError, MismatchError, OpTimeout, RankLeft
from tests.ranks.known_calls import SIZE, run, world

#: Each of an op in which rank 0 waits for nobody.
GIVES: dict[str, Callable[[Any], Any]] = {
    "broadcast": lambda x: dist.broadcast(x, 0),
    "reduce": lambda x: dist.reduce(x, 1),
    "gather": lambda x: dist.gather(x, [np.ones(2), np.ones(2)] if dist.get_rank() else None, 1),
}


def agree(name: str) -> None:
    """The first time all wait for all."""
    for _ in range(3):
        GIVES[name](np.ones(2))
    dist.barrier()


@pytest.mark.parametrize("name", GIVES)
def test_a_rank_that_only_gives_waits_for_nobody(name: str) -> None:
    has_left = threading.Event()

    def program(rank: int) -> None:
        agree(name)
        if rank == 1:
            assert has_left.wait(30)
        for _ in range(5):
            GIVES[name](np.ones(2))
        if rank == 0:
            has_left.set()
        dist.barrier()

    run(program)


def wait_for_a_barrier() -> None:
    work = dist.barrier(async_op=True)
    assert work is not None
    work.wait()


def call_at_two_lines(told_by: Callable[[], Any]) -> list[MismatchError]:
    """Rank 1 brings another size to the op that rank 0 has left, and has since called once more."""
    has_left = threading.Event()

    def program(rank: int) -> MismatchError:
        agree("broadcast")
        if rank == 0:
            dist.broadcast(np.ones(2), 0)  # the op that differs
            dist.broadcast(np.ones(2), 0)
            has_left.set()
        else:
            assert has_left.wait(30)
        differ = told_by if rank == 0 else lambda: dist.broadcast(np.ones(3), 0)
        with pytest.raises(MismatchError) as caught:
            differ()
        error = caught.value
        # Of no use any more, for the same reason.
        with pytest.raises(MismatchError, match="broadcast #5 ") as again:
            dist.barrier()
        assert again.value.what == error.what
        return error

    return run(program)


@pytest.mark.parametrize(
    "told_by",
    [
        lambda: dist.all_reduce(np.ones(2)),
        wait_for_a_barrier,
        lambda: dist.recv(np.ones(2), 1),
    ],
    ids=["a collective", "a wait", "a message"],
)
def test_a_difference_is_told_of_its_own_op(told_by: Callable[[], Any]) -> None:
    told, found = call_at_two_lines(told_by)
    assert told.what == found.what
    assert found.details == [*told.details, "this rank is the one that differs"]
    assert told.seq == found.seq == 5
    assert told.ranks == found.ranks == [1]
    text = str(told)
    assert "broadcast #5 on group 'world' differs between ranks" in text
    assert "[2] on rank 0" in text
    assert "[3] on rank 1" in text
    assert "ranks had left it" in text
    assert "unusable" in text
    sites = {site["call_site"] for side in told.sides for site in side["sites"]}
    assert len(sites) == 2
    assert all("test_left_early.py" in site for site in sites)


def leave_at_once(error_in: int) -> list[Any]:
    """What destroy_process_group raises on a rank that has left an op early."""

    def program(rank: int) -> Any:
        agree("broadcast")
        try:
            if rank == 0:
                dist.broadcast(np.ones(2), 0)
            elif error_in == 1:
                dist.broadcast(np.ones(3), 0)
            dist.destroy_process_group()
        except CollectiveError as error:
            return error
        return None

    return run(program)


def test_who_leaves_the_group_is_told_of_a_difference() -> None:
    told, found = leave_at_once(1)
    assert isinstance(told, MismatchError)
    assert isinstance(found, MismatchError)
    assert told.seq == found.seq == 5
    assert "[3] on rank 1" in str(told)


def test_who_leaves_the_group_is_told_who_never_came() -> None:
    told, other = leave_at_once(2)
    assert isinstance(told, RankLeft)
    assert other is None
    assert "broadcast #5 on group 'world' cannot complete: rank 1 left" in str(told)


def test_two_roots_are_told() -> None:
    def program(rank: int) -> MismatchError:
        for _ in range(4):
            dist.broadcast(np.ones(2), 0)
            dist.broadcast(np.ones(2), 1)
        dist.broadcast(np.ones(2), rank)  # both give, and wait for nobody
        with pytest.raises(MismatchError) as caught:
            dist.all_reduce(np.ones(2))
        return caught.value

    first, second = run(program)
    assert first.what == second.what
    assert first.seq == second.seq == 9
    assert "root" in first.what


def test_a_root_that_is_kept_says_by_whom() -> None:
    both_are_done = threading.Barrier(SIZE)

    def program(rank: int) -> None:
        agree("broadcast")
        if rank == 0:
            world().set_timeout(timedelta(seconds=0.2))
            for _ in range(16):  # as many as there are cells for
                dist.broadcast(np.ones(2), 0)
            with pytest.raises(OpTimeout) as caught:
                dist.broadcast(np.ones(2), 0)
            assert caught.value.missing == [1]
            assert caught.value.arrived == [0]
        both_are_done.wait()

    run(program)


def test_an_exception_on_its_way_out_waits_for_nobody() -> None:
    has_left = threading.Event()

    def program(rank: int) -> None:
        agree("broadcast")
        if rank == 1:
            assert has_left.wait(30)  # as one that waits for what rank 0 will never do
            return
        try:
            try:
                dist.broadcast(np.ones(2), 0)
                raise KeyError("batch")
            finally:
                dist.destroy_process_group()
        except KeyError:
            has_left.set()

    run(program)
