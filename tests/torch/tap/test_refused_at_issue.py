"""Ops that torch refuses as they are issued: because of a peer, which is told, or for reasons of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.errors import MismatchError, PeerLost
from distdbg.record.format import Status
from distdbg.record.reader import read_record

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

_OPS = (torch.distributed.ReduceOp.SUM, torch.distributed.ReduceOp.MAX)
#: method: that of torch's group; kernel: torch's dispatcher, then as before; long: every step in Python.
_WAYS = ("method", "kernel", "long")
#: How long `await_true` waits for the other rank; less than the limit of the ranks.
_PATIENCE_S = 60.0


class Refusals:
    """Begins, and has torch refuse the all_reduces of this rank as long as `refuse` is set."""

    def __init__(self, way: str) -> None:
        self.refuse: Callable[[], Exception] | None = None
        self.count = 0
        owner = torch.distributed.ProcessGroup
        real = owner.allreduce

        def allreduce(group: Any, *arguments: Any) -> Any:
            self._look()
            return real(group, *arguments)

        if way == "method":
            owner.allreduce = allreduce
        self.dist = begin()
        (self.tapped,) = tapped_groups().all()
        if way == "method":
            return
        tapped_groups().lanes.clear()
        dispatch = self.tapped.dispatch

        def dispatch_refused(call: Any, *more: Any) -> Any:
            start = call.start

            def started() -> Any:
                self._look()
                return start()

            call.start = started
            return dispatch(call, *more)

        self.tapped.dispatch = dispatch_refused
        if way == "long":
            self.tapped.lane = None

    def _look(self) -> None:
        if self.refuse is not None:
            self.count += 1
            raise self.refuse()

    @property
    def engine(self) -> Any:
        return self.tapped.group.engine.inner


def tapped_groups() -> Any:
    from distdbg.torch_bridge.guarded import state

    return state["job"]._groups


def caught(function: Callable[[], object]) -> Exception:
    with pytest.raises((RuntimeError, ValueError)) as info:
        function()
    return info.value


def await_true(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, f"{look} was not true within {_PATIENCE_S:g} s"
        time.sleep(0.001)  # nothing but another look tells


def aborted() -> Exception:
    return RuntimeError("NCCL communicator was aborted on rank 0.")


def sends_after_a_difference(is_long: bool) -> str:
    import torch.distributed as dist

    real = dist.ProcessGroup.send
    works = []

    def send(group: Any, tensors: Any, peer: int, tag: int) -> Any:
        if tensors[0].dtype is not torch.float64:
            return real(group, tensors, peer, tag)
        await_true(lane.control.reported_mismatch)
        while True:  # until torch notices that the other rank has closed its connections
            works.append(real(group, tensors, peer, tag))

    dist.ProcessGroup.send = send
    begin()
    lane = tapped_groups().all()[0].lane
    lane.checked.messages.are_certain = not is_long
    x = torch.ones(4)
    if dist.get_rank() == 0:
        dist.send(x, 1)
        error = caught(lambda: dist.send(x.double(), 1))
    else:
        dist.recv(x, 0)
        error = caught(lambda: dist.recv(x, 0))
    assert isinstance(error, MismatchError), repr(error)
    return str(error)


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
def test_a_send_is_refused_because_the_receiver_has_told_a_difference(
    watched: Callable[..., list[Any]], is_long: bool, tmp_path: Path
) -> None:
    for text in watched(sends_after_a_difference, is_long=is_long):
        assert "rank 0 sent 4 float64, rank 1 expects 4 float32" in text
    last = [op for op in read_record(tmp_path / "run" / "rank00000.ddr").ops if op.is_message][-1]
    assert last.status == Status.MISMATCH
    assert "4 float64" in (last.error or "")


def sends_to_the_dead(is_long: bool) -> str:
    dist = begin()
    lane = tapped_groups().all()[0].lane
    lane.checked.messages.are_certain = not is_long
    x = torch.ones(4)
    if dist.get_rank() == 1:
        dist.recv(x, 0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.send(x, 1)
    works: list[Any] = []

    def go_on() -> None:
        while True:  # none is waited for
            works.append(dist.isend(x, 1))

    error = caught(go_on)
    assert isinstance(error, PeerLost), repr(error)
    return str(error)


@pytest.mark.parametrize("level", ["info", "detail"])
@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
def test_a_send_is_refused_because_the_receiver_is_dead(
    watched: Callable[..., list[Any]], level: str, is_long: bool
) -> None:
    expect_exit = {1: -signal.SIGKILL}
    reported = watched(sends_to_the_dead, level, expect_exit=expect_exit, is_long=is_long)[0]
    assert "rank 1" in reported.splitlines()[0]


def differs(way: str) -> str:
    refusals = Refusals(way)
    dist = refusals.dist
    rank, x = dist.get_rank(), torch.ones(4)
    dist.all_reduce(x)
    if rank == 0:

        def refuse() -> Exception:
            await_true(refusals.engine.control.reported_mismatch)
            return aborted()

        refusals.refuse = refuse
    error = caught(lambda: dist.all_reduce(x, op=_OPS[rank]))
    assert isinstance(error, MismatchError), repr(error)
    assert refusals.count == (rank == 0)
    return str(error)


@pytest.mark.parametrize("way", _WAYS)
def test_a_collective_is_refused_because_ranks_differ(
    watched: Callable[..., list[Any]], way: str
) -> None:
    for text in watched(differs, "info", way=way):
        assert "SUM" in text
        assert "MAX" in text


def dies(way: str) -> str:
    refusals = Refusals(way)
    dist = refusals.dist
    rank, x = dist.get_rank(), torch.ones(4)
    dist.all_reduce(x)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    refusals.refuse = aborted
    error = caught(lambda: dist.all_reduce(x, async_op=True))
    assert isinstance(error, PeerLost), repr(error)
    return str(error)


@pytest.mark.parametrize("way", _WAYS)
def test_a_collective_is_refused_because_a_rank_is_dead(
    watched: Callable[..., list[Any]], way: str
) -> None:
    assert "rank 1" in watched(dies, "info", expect_exit={1: -signal.SIGKILL}, way=way)[0]


def is_at_fault(way: str) -> list[str]:
    refusals = Refusals(way)
    dist = refusals.dist
    x = torch.ones(4)
    errors = []
    for error in (aborted(), ValueError("tensors must be of memory")):
        refusals.refuse = lambda error=error: error
        for is_async in (False, True):
            errors.append(caught(lambda a=is_async: dist.all_reduce(x, async_op=a)))
            assert errors[-1] is error
        refusals.refuse = None
        dist.all_reduce(x)
    dist.destroy_process_group()
    return [str(float(x[0])), *map(str, errors)]


@pytest.mark.parametrize("level", ["info", "detail"])
@pytest.mark.parametrize("way", _WAYS)
def test_a_refusal_that_peers_are_no_reason_for_stays_as_it_is(
    watched: Callable[..., list[Any]], level: str, way: str
) -> None:
    first, second = watched(is_at_fault, level, way=way)
    assert first == second
    assert first == ["4.0", *[str(aborted())] * 2, *["tensors must be of memory"] * 2]


def watches_no_longer(way: str) -> str:
    refusals = Refusals(way)
    dist = refusals.dist
    x = torch.ones(4)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        store.wait(["issued"])
        tapped_groups().stop("of a test")
        store.wait(["refused"])
        return ""

    def refuse() -> Exception:
        store.set("issued", "")
        await_true(lambda: refusals.tapped.asked_to_stop)
        return aborted()

    refusals.refuse = refuse
    error = caught(lambda: dist.all_reduce(x))
    assert refusals.count == 1
    store.set("refused", "")
    return str(error)


@pytest.mark.parametrize("way", _WAYS)
def test_a_refused_op_is_not_started_again_where_nobody_watches(
    watched: Callable[..., list[Any]], way: str
) -> None:
    assert watched(watches_no_longer, "info", way=way) == [str(aborted()), ""]
