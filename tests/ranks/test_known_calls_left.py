"""Asynchronous ops that native code has begun, left as they are until somebody asks for more than the end."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.check.latent import LatentWarning
from distdbg.errors import MismatchError
from distdbg.runtime.api import known_calls
from distdbg.runtime.backends.pending import CpuPending
from tests.ranks.known_calls import are_freed, finish, hits, run


def warm_up(*arrays: Any) -> None:
    for x in arrays:
        for _ in range(2):
            finish(dist.all_reduce(x, async_op=True))


def started(x: Any) -> dist.Work:
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    return work


class Holder:
    """Something that refers to itself: the collector ends it, at any allocation."""

    def __init__(self, work: dist.Work) -> None:
        self.work = work
        self.own = self


def test_works_that_the_collector_drops_anywhere_hold_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda about: None)
    before, interval = gc.get_threshold(), sys.getswitchinterval()

    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up(x)
        for _ in range(2000):
            works = [started(np.ones(4, "f4")) for _ in range(4)]
            for work in works[1:]:
                Holder(work)
            del work
            repr(works[0])
            works[0].wait()
            del works

    gc.set_threshold(3, 2, 2)
    sys.setswitchinterval(1e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LatentWarning)
            run(program)
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(interval)


def test_an_op_that_has_failed_lets_go_of_its_array() -> None:
    def program(rank: int) -> bool:
        arrays = [np.ones(n, "f4") for n in (4, 8)]
        warm_up(*arrays)
        alive = []
        for _ in range(4):
            x = np.ones(len(arrays[rank]), "f4")
            alive.append(weakref.ref(x))
            with pytest.raises(MismatchError):
                started(x).wait()
            del x
        for work in [started(np.ones(4, "f4")) for _ in range(4)]:
            work.wait()
        return are_freed(*alive)

    assert run(program) == [True, True]


def test_a_work_that_its_group_holds_is_collected_with_it() -> None:
    def program(rank: int) -> bool:
        group: Any = dist.new_group([0, 1])
        x = np.ones(4, "f4")
        for _ in range(2):
            finish(dist.all_reduce(x, group=group, async_op=True))
        work = dist.all_reduce(x, group=group, async_op=True)
        finish(work)
        group.note = work
        dist.destroy_process_group(group)
        alive = weakref.ref(group)
        del group, work
        return are_freed(alive)

    assert run(program) == [True, True]


def test_one_that_is_unfolded_within_its_unfolding_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by a signal handler in the middle of it."""

    def program(rank: int) -> None:
        x, y = np.ones(4, "f4"), np.ones(8, "f4")
        warm_up(x, y)
        work = started(x)
        waits: list[object] = []

        class Interrupted(CpuPending):
            def __init__(self, *given: Any) -> None:
                if not waits and given[1].outputs[0] is x:
                    waits.append(None)
                    repr(work)
                    waits[0] = work.get_future()
                super().__init__(*given)

        monkeypatch.setattr(known_calls, "CpuPending", Interrupted)
        other = started(y)
        future: Any = waits[0]
        other.wait()
        assert work.wait()
        assert future.wait()[0] is x

    with warnings.catch_warnings():
        warnings.simplefilter("error", LatentWarning)
        run(program, 1)


@pytest.mark.parametrize("level", [dist.DebugLevel.OFF, dist.DebugLevel.INFO])
def test_where_nothing_is_looked_for_one_in_flight_costs_others_nothing(
    level: dist.DebugLevel,
) -> None:
    def program(rank: int) -> int:
        dist.set_debug_level(level)
        x, y = np.ones(4, "f4"), np.ones(8, "f4")
        warm_up(x)
        for _ in range(2):
            dist.all_reduce(y)
        work = started(x)
        begun = work.begun
        assert begun is not None
        while not begun.handle.done:
            dist.all_reduce(y)  # behind it
        before = hits()
        for _ in range(5):
            dist.all_reduce(y)
        found = hits() - before
        work.wait()
        return found

    assert run(program, 1) == [5]


def test_one_that_is_begun_below_detail_is_not_looked_at_above() -> None:
    def program(rank: int) -> None:
        dist.set_debug_level(dist.DebugLevel.OFF)
        x = np.ones(4, "f4")
        warm_up(x)
        work: dist.Work | None = started(x)
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        finish(started(np.ones(4, "f4")))
        assert work is not None
        del work

    with warnings.catch_warnings():
        warnings.simplefilter("error", LatentWarning)
        run(program, 1)
