"""A backend that is not ours and the control page: an abort ends its ops, a pause stops their limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.page import ControlPage
from distdbg.control.words import AbortWords
from distdbg.errors import (
    CollectiveError,
    DistError,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
)
from distdbg.ops.call import Call, Kind
from distdbg.record.host import host_name
from distdbg.runtime.backends.checked.control import DIFFERS, ControlGroup
from distdbg.runtime.process.world import current
from tests.support import in_memory
from tests.support.store_ranks import limit_ops, run_store_ranks


@pytest.fixture(autouse=True)
def backends() -> Iterator[None]:
    with in_memory.registered():
        yield


def in_a_while(delay_s: float, do: Callable[[ControlPage], object]) -> threading.Timer:
    """The delay lets the wait begin."""
    folder = current().run_folder
    assert folder is not None
    page = ControlPage.open(folder, host_name())

    def act() -> None:
        do(page)
        page.close()

    timer = threading.Timer(delay_s, act)
    timer.start()
    return timer


def reduce(is_async: bool) -> DistError:
    with pytest.raises(DistError) as info:
        _reduce(is_async)
    return info.value


def _reduce(is_async: bool) -> None:
    work = dist.all_reduce(np.ones(2), async_op=is_async)
    if work is not None:
        work.wait()


@pytest.mark.parametrize("backend", ["together", "bound"])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_abort_ends_an_op_that_hangs_in_the_backend(backend: str, is_async: bool) -> None:
    in_memory.Together.hangs[1] = "allreduce"

    def rank_main(rank: int) -> list[DistError]:
        timer = None
        if rank == 0:
            words = AbortWords(what="enough", by="ada")
            timer = in_a_while(0.2, lambda page: page.abort(words))
        errors = [reduce(is_async), reduce(False)]
        if timer is not None:
            timer.join()
        return errors

    started = time.monotonic()
    for errors in run_store_ranks(rank_main, 2, backend=backend, timeout_s=60):
        for error in errors:
            assert isinstance(error, JobAborted)
            assert error.what == "the job was aborted by ada: enough"
            assert error.kind == "all_reduce"
    assert time.monotonic() - started < 30
    assert all("abort" in made.events for made in in_memory.Together.made)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.slow
def test_a_limit_outlives_a_pause(is_async: bool) -> None:
    in_memory.Together.hangs.update({0: "allreduce", 1: "allreduce"})

    def pause(page: ControlPage) -> None:
        page.pause()
        time.sleep(1.0)  # as long as it is to last
        page.resume()

    def rank_main(rank: int) -> float:
        clock = current().control
        limit_ops(0.4)
        started = clock.now()
        timer = in_a_while(0.1, pause) if rank == 0 else None
        error = reduce(is_async)
        assert isinstance(error, (OpTimeout, CollectiveError))
        took_s = clock.now() - started
        if timer is not None:
            timer.join()
        return took_s

    # In the time of the job, which stands in the pause.
    for took_s in run_store_ranks(rank_main, 2, backend="together", timeout_s=60):
        assert 0.35 < took_s < 30


class Dead:
    """The process of a rank that was killed."""

    def is_dead(self) -> bool:
        return True

    def how(self) -> str:
        return "died (signal 9, SIGKILL)"


class Broken:
    """A native group that another rank has broken."""

    def __init__(self, why: str) -> None:
        self.why = why

    def look(self) -> None: ...

    def cause(self) -> tuple[int, int, int, int, str]:
        return (0, 2, 0, 0, self.why)

    def how_left(self, rank: int) -> str:
        return "left (returned, exit code 0)" if self.why == "rank 1 returned" else self.why


@pytest.mark.parametrize(
    ("why", "error"),
    [
        ("rank 1 died", PeerLost),
        ("rank 1 returned", RankLeft),
        (f"a {DIFFERS} b", MismatchError),
    ],
)
def test_a_rank_that_hears_of_a_death_from_another_names_the_dead_one(
    why: str, error: type[DistError]
) -> None:
    control = object.__new__(ControlGroup)
    alive = SimpleNamespace(watched=None)
    control._members = [alive, SimpleNamespace(watched=Dead()), alive]  # type: ignore[list-item]
    control._group = Broken(why)  # type: ignore[assignment]
    control.names, control.name, control._died_ns = [0, 1, 2], "world", {}
    control.rank, control._between = 0, SimpleNamespace(hosts=())  # type: ignore[assignment]  # all it asks
    control.clock = SimpleNamespace(now_ns=time.monotonic_ns)  # type: ignore[assignment]
    control._where = lambda rank: "at home"  # type: ignore[assignment,misc]
    reported: list[DistError] = []
    control._tell_more = reported.append  # type: ignore[assignment]
    call = Call(Kind.ALL_REDUCE, (), (), name="all_reduce")
    with pytest.raises(error) as info:
        control.look(call, 2, 0)
    assert reported == ([info.value] if isinstance(info.value, RankLeft) else [])
    if isinstance(info.value, PeerLost):
        assert info.value.peer == 1
    if isinstance(info.value, RankLeft):
        assert "rank 1: at home" in str(info.value)
