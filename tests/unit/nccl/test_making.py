"""The communicator of a group is made by all its ranks, or all of them are told why not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import (
    DistBackendError,
    DistStoreError,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
)
from distdbg.runtime.backends.nccl import library
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.splitting import nccl_engine_of
from tests.unit.nccl.stand_in import (
    Machine,
    NcclError,
    StandInCommunicator,
    StandInDevice,
    of_rank,
    raiser,
    sum_of,
)

LIMIT_S = 60
Make = Callable[..., NcclEngine]


def test_a_group_whose_communicator_was_not_made_is_not_tried_again(make: Make) -> None:
    tries: list[int] = []

    def fail(device: int, *_: object) -> None:
        tries.append(device)
        raise DistBackendError("NCCL made no communicator")

    engine = make(open_it=fail)
    with pytest.raises(DistBackendError, match="made no communicator"):
        engine.run(sum_of([1]))
    with pytest.raises(DistBackendError, match=r"cannot run: .*made no communicator"):
        engine.run(sum_of([1]))
    assert tries == [0]


def test_a_group_that_is_given_up_while_its_communicator_is_made(
    machine: Machine, make: Make
) -> None:
    def open_it(device: int, *_: object) -> Any:
        engine.abort("while it was made")
        return StandInCommunicator(machine, 1, bytes(128), 0)

    engine = make(open_it=open_it)
    with pytest.raises(DistBackendError, match="while it was made"):
        engine.run(sum_of([1]))
    assert machine.calls == []
    assert machine.aborted == {0}


def test_that_no_unique_id_can_be_made_is_told_to_all_ranks(machine: Machine) -> None:
    def fail() -> bytes:
        raise NcclError("NCCL_ERROR_SYSTEM_ERROR: no socket interface found")

    library.load().nccl.get_unique_id = fail

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        with pytest.raises(DistBackendError, match="no socket interface") as failed:
            dist.all_reduce(of_rank([1]), group=pg)
        assert "NCCL_SOCKET_IFNAME" in str(failed.value.hint)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)


def test_who_did_not_come_is_named_when_the_communicator_is_late(machine: Machine) -> None:
    def program() -> None:
        pg = dist.new_group(backend="nccl", timeout=timedelta(seconds=0.05))
        if dist.get_rank() != 2:
            with pytest.raises(OpTimeout, match="it waits for rank 2") as late:
                nccl_engine_of(pg).bind(dist.get_rank())
            assert late.value.missing == [2]
        dist.barrier()

    dist.run_threads(program, 3, timeout_s=LIMIT_S)


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
def test_a_limit_is_kept_while_the_communicator_waits_for_a_rank(
    machine: Machine, level: str
) -> None:
    has_ended = threading.Event()

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        if me == 1:
            assert has_ended.wait(LIMIT_S)
        with pytest.raises(dist.DistError, match="all_reduce #1") as reported:
            dist.all_reduce(of_rank([1]), group=pg, timeout=0.05)
        if me == 0:
            has_ended.set()
            assert isinstance(reported.value, OpTimeout)
            assert reported.value.missing == [1]

    dist.run_threads(program, 2, timeout_s=LIMIT_S)


def test_another_error_of_the_store_keeps_its_words(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        pg = dist.new_group(backend="nccl")
        engine = nccl_engine_of(pg)
        store = engine._open.args[-1]
        monkeypatch.setattr(
            type(store), "wait", raiser(DistStoreError("the store of the job is closed"))
        )
        monkeypatch.setattr(type(store), "check", lambda *_: False)
        with pytest.raises(DistStoreError, match="is closed"):
            engine.bind(0)

    dist.run_threads(program, 1, timeout_s=LIMIT_S)


def test_a_peer_that_is_gone_while_the_communicator_is_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = SimpleNamespace(
        watched=SimpleNamespace(is_dead=lambda: True, how=lambda: "exited with 3")
    )
    killed = SimpleNamespace(
        watched=SimpleNamespace(is_dead=lambda: True, how=lambda: "was killed by SIGKILL")
    )

    def program() -> None:
        for life, kind in ((dead, RankLeft), (killed, PeerLost)):
            pg = dist.new_group(backend="nccl")
            if dist.get_rank() == 0:
                pg.members = (pg.members[0], life)
                with pytest.raises(kind, match="was not made: rank 1") as lost:
                    nccl_engine_of(pg).bind(0)
                assert (type(lost.value), lost.value.peer) == (kind, 1)
            dist.barrier()

    dist.run_threads(program, 2, timeout_s=LIMIT_S)


def test_what_ranks_have_is_compared_when_the_group_is_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        me = dist.get_rank()
        with pytest.raises(MismatchError, match="device_id= was given on ranks 0,2, not on rank 1"):
            dist.new_group(backend="nccl", device_id=None if me == 1 else me)

    dist.run_threads(program, 3, timeout_s=LIMIT_S)

    def find() -> str | None:
        return "there is no GPU" if dist.get_rank() == 1 else None

    def unlike() -> None:
        with pytest.raises(
            DistBackendError, match="ranks 0,2 can use NCCL, rank 1 cannot: there is no GPU"
        ):
            dist.new_group(backend="cpu:gloo,cuda:nccl")

    monkeypatch.setattr(library, "why_not", find)
    dist.run_threads(unlike, 3, timeout_s=LIMIT_S)


def use_current_devices(machine: Machine, current: Callable[[], int]) -> None:
    """As CUDA's, which each thread has: one that has chosen none has the first."""
    library.load().cupy.cuda.Device = lambda number=None: StandInDevice(
        machine, current() if number is None else number
    )


def test_an_asynchronous_barrier_begins_on_the_gpu_of_the_program(machine: Machine) -> None:
    here = threading.local()
    use_current_devices(machine, lambda: getattr(here, "device", 0))
    places: dict[int, int] = {}

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        me = dist.get_rank()
        here.device = 5 - me
        pg = dist.new_group(backend="nccl")
        work = dist.barrier(pg, async_op=True)
        assert work is not None
        work.wait(timedelta(seconds=LIMIT_S))
        places[me] = nccl_engine_of(pg).device

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert places == {0: 5, 1: 4}


def test_a_barrier_where_no_gpu_was_chosen_takes_one_for_each_rank(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    use_current_devices(machine, lambda: 0)
    places: dict[int, int] = {}

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        dist.barrier(pg)
        places[dist.get_rank()] = nccl_engine_of(pg).device

    dist.run_threads(program, 3, timeout_s=LIMIT_S)
    assert places == {0: 0, 1: 1, 2: 2}
    assert "no array that tells the GPU of this rank: cuda:2 is taken" in caplog.text
