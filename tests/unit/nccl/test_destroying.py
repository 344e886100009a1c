"""Communicators that NCCL is asked about, destroys or aborts: a recording stand-in for NCCL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import distdbg as dist
from distdbg.runtime.backends.nccl.engine import NcclEngine
from tests.unit.nccl.stand_in import Machine, StandInCommunicator, of_rank, sum_of, use

if TYPE_CHECKING:
    import pytest

LIMIT_S = 60
Make = Callable[..., NcclEngine]


def test_nccl_is_asked_for_errors_of_no_communicator_that_is_being_aborted(
    machine: Machine, make: Make
) -> None:
    has_come, may_go, is_asked, aborts = threading.Event(), threading.Event(), [False], list[bool]()

    class Slow(StandInCommunicator):
        def check_async_error(self) -> None:
            is_asked[0] = True
            has_come.set()
            assert may_go.wait(LIMIT_S)
            is_asked[0] = False

        def abort(self) -> None:
            aborts.append(is_asked[0])

    use(lambda size, unique_id, rank: Slow(machine, size, unique_id, rank))
    engine = make()
    machine.hangs = True
    engine.submit(sum_of([1]))
    assert has_come.wait(LIMIT_S)
    other = threading.Thread(target=engine.abort, args=("by the test",))
    other.start()
    time.sleep(0.05)  # nothing tells that the other thread has come to the point where it waits
    assert aborts == []
    may_go.set()
    other.join()
    assert aborts == [False]


def test_nccl_that_waits_for_a_peer_while_it_destroys_is_broken_off_at_the_limit(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    was_aborted = threading.Event()

    class Waiting(StandInCommunicator):
        def destroy(self) -> None:
            if self.rank == 0:
                assert was_aborted.wait(LIMIT_S)
            super().destroy()

        def abort(self) -> None:
            super().abort()
            was_aborted.set()

    use(lambda size, unique_id, rank: Waiting(machine, size, unique_id, rank))

    def program() -> None:
        pg = dist.new_group(backend="nccl", timeout=timedelta(seconds=0.3))
        dist.all_reduce(of_rank([1]), group=pg, timeout=timedelta(seconds=LIMIT_S))
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == {0}
    assert "which NCCL did not destroy" in caplog.text
    assert "was not destroyed within 0.3" in caplog.text
    assert "it waits for rank 1" in caplog.text
