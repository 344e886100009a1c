"""CpuPending: waits that give up before the op has ended, or in that moment."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import OpTimeout
from distdbg.native import NativeError
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.pending import CpuPending
from tests.support.store_ranks import run_store_ranks


class EndsAsTheWaitGivesUp:
    """The part of a native group and of an engine that a pending op uses."""

    def __init__(self) -> None:
        self.handle = SimpleNamespace(done=False, is_plain=False)
        self.group = self
        self.compares_order = False

    def wait_op(self, op: Any, deadline_ns: int) -> str:
        if not op.done:
            op.done = True  # the other ranks came right after the deadline was noticed
            raise NativeError("timeout")
        return ""

    def forget(self, pending: CpuPending) -> None:
        pass

    def fail(self, *facts: object) -> NoReturn:
        raise OpTimeout("all_reduce #1 waited 0.0 s")


def test_an_op_that_ends_as_a_wait_gives_up_has_ended_well() -> None:
    engine: Any = EndsAsTheWaitGivesUp()
    pending = CpuPending(engine, Call(Kind.ALL_REDUCE, (), ()), engine.handle, (), 0)
    pending.wait(0)
    assert pending.done()
    pending.wait(0)


def test_a_wait_that_gives_up_names_the_missing_rank_and_the_op_goes_on() -> None:
    def run(rank: int) -> None:
        world = dist.group.WORLD
        assert world is not None
        store = world.get_group_store()
        dist.barrier()
        x = np.ones(1)
        if rank == 1:
            store.wait(["rank 0 gave up"])
            dist.all_reduce(x)
            store.wait(["send"])
            dist.send(x, dst=0)
            return
        work = dist.all_reduce(x, async_op=True)
        assert work is not None
        with pytest.raises(OpTimeout, match=r"for rank 1 of 0-1; 1 of 2 ranks arrived") as caught:
            work.wait(timedelta(seconds=0.2))
        store.set("rank 0 gave up", "")
        assert caught.value.missing == [1]
        assert "the op continues" in caught.value.details[-1]
        assert work.wait()
        assert x[0] == 2
        receiving = dist.irecv(x, src=1)
        assert receiving is not None
        with pytest.raises(OpTimeout, match="for rank 1 to send") as caught:
            receiving.wait(timedelta(seconds=0.01))
        assert "the op continues" in caught.value.details[-1]
        store.set("send", "")
        assert receiving.wait()

    run_store_ranks(run, 2, backend="gloo")


class EndsWhileTheWordsAreFound(EndsAsTheWaitGivesUp):
    """Its op ends after the wait has given up, before the error of the wait is raised."""

    def wait_op(self, op: Any, deadline_ns: int) -> str:
        if not op.done:
            raise NativeError("timeout")
        return ""

    def fail(self, *facts: object) -> NoReturn:
        self.handle.done = True
        super().fail(*facts)


def test_the_error_of_a_wait_does_not_become_that_of_the_op() -> None:
    engine: Any = EndsWhileTheWordsAreFound()
    pending = CpuPending(engine, Call(Kind.ALL_REDUCE, (), ()), engine.handle, (), 0)
    with pytest.raises(OpTimeout):
        pending.wait(0)
    assert pending.done()
    pending.wait(0)  # it ended well
