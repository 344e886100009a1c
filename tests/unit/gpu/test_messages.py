"""Messages of arrays on a GPU that their receiver takes from the sender's device. The GPU is a stand-in."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
)
from distdbg.record.reader import read_record
from distdbg.runtime.backends.gpu import driver
from tests.unit.gpu.stand_in import Machine


def run(program: Callable[[], Any], size: int = 2) -> list[Any]:
    return dist.run_threads(program, size, timeout_s=30)


def move(x: Any, limit_s: float | None = None, *, is_async: bool = False) -> None:
    """From rank 0 to rank 1."""
    is_send = dist.get_rank() == 0
    limit = None if limit_s is None else timedelta(seconds=limit_s)
    if is_async:
        work = dist.isend(x, 1, timeout=limit) if is_send else dist.irecv(x, 0, timeout=limit)
        assert work is not None
        work.wait()
    elif is_send:
        dist.send(x, 1, timeout=limit)
    else:
        dist.recv(x, 0, timeout=limit)


def copies(machine: Machine, rank: int) -> list[int]:
    return [nbytes for name, nbytes in machine.calls[rank] if name == "copy"]


def test_a_message_is_one_copy_by_its_receiver(machine: Machine) -> None:
    def program() -> list[float]:
        x = machine.array([1.0, 2.0, 3.0] if dist.get_rank() == 0 else np.zeros(3))
        if dist.get_rank() == 0:
            dist.send(x, 1)
            x.host[:] = 7  # it may be changed now
        else:
            assert dist.recv(x, 0) == 0
        found: list[float] = x.host.tolist()
        return found

    assert run(program) == [[7.0] * 3, [1.0, 2.0, 3.0]]
    assert copies(machine, 0) == []
    assert copies(machine, 1) == [12]
    assert "wait for a peer's event" in machine.names(1)
    assert not machine.pinned


@pytest.mark.parametrize("nbytes", [1, 64, 160, 168, 224, 4096, 1 << 20])
def test_an_offer_is_never_taken_for_data_whatever_its_size(machine: Machine, nbytes: int) -> None:
    """Among them arrays as long as an offer, and those that come with the offer on the host."""
    data = np.arange(nbytes, dtype=np.uint8)

    def program() -> None:
        for to_host in (False, True):
            if dist.get_rank() == 0:
                dist.send(machine.array(data, np.uint8), 1)
            elif to_host:
                on_host = np.zeros(nbytes, np.uint8)
                dist.recv(on_host, 0)
                assert (on_host == data).all()
            else:
                x = machine.array(np.zeros(nbytes), np.uint8)
                dist.recv(x, 0)
                assert (x.host == data).all()

    run(program)
    assert copies(machine, 0) == [nbytes]  # to the host, for a receiver there
    assert copies(machine, 1) == [nbytes]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("on_gpu", [(True, True), (True, False), (False, True)])
def test_either_side_may_be_on_the_host(
    machine: Machine, on_gpu: tuple[bool, bool], is_async: bool
) -> None:
    def program() -> Any:
        rank = dist.get_rank()
        values = np.arange(50000, dtype=np.float32) * (1 - rank)
        x: Any = machine.array(values) if on_gpu[rank] else values
        if is_async:
            work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
            assert work is not None
            work.wait()
        elif rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        return (x.host if on_gpu[rank] else x).tolist()

    first, second = run(program)
    assert first == second == list(range(50000))


def test_asynchronous_ones_go_on_though_nobody_waits_for_them(machine: Machine) -> None:
    """Rank 1's irecv and rank 2's isend must end while those ranks are elsewhere."""

    def program() -> list[float]:
        rank = dist.get_rank()
        x = machine.array([float(rank)] * 4)
        host = np.full(4, 9.0, np.float32)
        works = []
        if rank == 0:
            works = [dist.irecv(x, 1), dist.isend(machine.array([5.0] * 4), 1)]
            dist.recv(np.zeros(1), 1)
        elif rank == 1:
            works = [dist.irecv(x, 0), dist.irecv(host, 2)]
            dist.send(machine.array([6.0] * 4), 0)
            dist.send(np.zeros(1), 0)
        else:
            works = [dist.isend(x, 1)]
        dist.barrier()
        for work in works:
            assert work is not None
            work.wait()
            assert work.is_completed()
        return [*x.host.tolist(), *host.tolist()]

    assert run(program, 3) == [[6.0] * 4 + [9.0] * 4, [5.0] * 4 + [2.0] * 4, [2.0] * 4 + [9.0] * 4]


def test_what_came_through_the_host_is_brought_to_the_device_though_nobody_waits(
    machine: Machine,
) -> None:
    def program() -> list[float]:
        x = machine.array(np.zeros(4))
        if dist.get_rank() == 0:
            dist.send(np.ones(4, np.float32), 1)
            dist.barrier()
            return []
        work = dist.irecv(x, 0)
        assert work is not None
        dist.barrier()
        assert machine.has_copied.wait(20.0)
        found: list[float] = x.host.tolist()
        work.wait()
        return found

    assert run(program)[1] == [1.0] * 4


def test_tags_and_any_source_match_as_on_the_host(machine: Machine) -> None:
    def program() -> Any:
        rank = dist.get_rank()
        works: list[Any] = []
        if rank == 0:
            for tag in (3, 4):
                works.append(dist.isend(machine.array([10.0 + tag]), 2, tag=tag))
            works.append(dist.isend(machine.array([1.0]), 2))
        elif rank == 1:
            works.append(dist.isend(machine.array([2.0]), 2))
        found = []
        if rank == 2:
            for tag in (4, 3):
                x = machine.array([0.0])
                assert dist.recv(x, 0, tag=tag) == 0
                found.append(x.host[0])
            for _ in range(2):
                x = machine.array([0.0])
                source = dist.recv(x)
                assert x.host[0] == source + 1
        for work in works:
            work.wait()
        return found

    assert run(program, 3)[2] == [14.0, 13.0]


def test_a_batch_exchanges_arrays(machine: Machine) -> None:
    def program() -> list[float]:
        rank, size = dist.get_rank(), dist.get_world_size()
        mine, got = machine.array([float(rank)] * 8), machine.array(np.zeros(8))
        ops = [
            dist.P2POp(dist.isend, mine, (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return [float(got.host[0])]

    assert run(program, 4) == [[3.0], [0.0], [1.0], [2.0]]
    assert all(copies(machine, rank) == [32] for rank in range(4))


def test_arrays_that_are_not_contiguous_are_copied_into_their_places(machine: Machine) -> None:
    def program() -> Any:
        x = machine.array(np.arange(12).reshape(3, 4) if dist.get_rank() == 0 else np.zeros((3, 4)))
        column = x[:, 1]
        if dist.get_rank() == 0:
            dist.send(column, 1)
        else:
            dist.recv(column, 0)
        return x.host[:, :2].tolist()

    assert run(program)[1] == [[0.0, 1.0], [0.0, 5.0], [0.0, 9.0]]


@pytest.mark.parametrize("on_host", [False, True])
def test_a_difference_is_told_on_both_sides_and_the_group_goes_on(
    machine: Machine, on_host: bool
) -> None:
    def program() -> float:
        rank = dist.get_rank()
        for dtype, count in (([np.int32, np.float32][rank], 4), (np.float32, 4 + rank)):
            ones: Any = np.ones(count, dtype)
            x = ones if rank == 1 and on_host else machine.array(ones, dtype)
            with pytest.raises(MismatchError) as differs:
                move(x)
            assert "test_messages.py" in str(differs.value)
        x = machine.array([3.0 - rank])
        move(x)
        return float(x.host[0])

    assert run(program) == [3.0, 3.0]
    assert copies(machine, 1) == [4]


def test_the_level_decides_whether_dtypes_are_compared(machine: Machine) -> None:
    def program() -> Any:
        dist.set_debug_level(dist.DebugLevel.OFF)
        rank = dist.get_rank()
        x = machine.array([1.0, 2.0] if rank == 0 else [0, 0], [np.float32, np.int32][rank])
        move(x)
        return x.host.tolist()

    assert run(program)[1] == np.array([1, 2], np.float32).view(np.int32).tolist()


def test_who_cannot_open_memory_gets_data_and_is_offered_nothing_again(machine: Machine) -> None:
    machine.cannot.add((1, "open"))

    def program() -> list[float]:
        found = []
        for value in (1.0, 2.0):
            x = machine.array([value] if dist.get_rank() == 0 else [0.0])
            move(x)
            found.append(float(x.host[0]))
        return found

    assert run(program) == [[1.0, 2.0]] * 2
    # The second one is copied by CuPy, as a whole, before it is sent.
    assert machine.names(0).count("export") == 1
    assert copies(machine, 0) == [4]


def test_memory_that_cannot_be_exported_goes_through_the_host(machine: Machine) -> None:
    machine.cannot.add((0, "export"))

    def program() -> float:
        x = machine.array([4.0 - dist.get_rank()])
        move(x)
        return float(x.host[0])

    assert run(program) == [4.0, 4.0]
    assert "open" not in machine.names(1)


def test_where_ipc_is_off_nothing_is_offered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")

    def program() -> float:
        x = machine.array(np.full(1 << 18, 4.0 - dist.get_rank()))
        move(x)
        return float(x.host[0])

    assert run(program) == [4.0, 4.0]
    assert machine.names(0) == machine.names(1) == []


def test_small_ones_go_through_the_host(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "on")

    def program() -> float:
        found = 0.0
        for count in (100, 1 << 14):
            x = machine.array(np.full(count, 4.0 - dist.get_rank()))
            move(x)
            found += float(x.host[-1])
        return found

    assert run(program) == [8.0, 8.0]
    assert copies(machine, 1) == [1 << 16]


def test_an_allocation_is_opened_once_and_closed_when_its_owner_has_freed_it(
    machine: Machine,
) -> None:
    def program() -> None:
        for _ in range(2):
            xs = [machine.array([1.0]) for _ in range(3)]
            for x in xs:
                move(x)
            dist.barrier()
            if dist.get_rank() == 0:
                machine.free_pool()

    run(program)
    [first, second] = [each.buffer_id for each in machine.allocations if each.owner == 0]
    told = [call for call in machine.calls[1] if call[0] in ("open", "close")]
    assert told == [("open", first), ("close", first), ("open", second), ("close", second)]
    assert machine.names(1).count("open event") == 1
    assert machine.names(0).count("export") == 2


def test_no_more_than_some_allocations_are_kept_open(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.runtime.backends.gpu.message_memory.MOST_OPEN", 2)

    def program() -> None:
        xs = [machine.array(np.full(1 << 13, i)) for i in range(5)]  # a pool for each
        for x in (*xs, *xs):
            move(x)

    run(program)
    are_open, most = 0, 0
    for name, _ in machine.calls[1]:
        are_open += (name == "open") - (name == "close")
        most = max(most, are_open)
    assert (most, are_open) == (2, 0)


def test_messages_in_flight_have_events_of_their_own(machine: Machine) -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            works = [dist.isend(machine.array([1.0 * tag]), 1, tag=tag) for tag in range(4)]
            dist.barrier()
        else:
            dist.barrier()
            works = [dist.irecv(machine.array([0.0]), 0, tag=tag) for tag in range(4)]
        for work in works:
            assert work is not None
            work.wait()

    run(program)
    assert machine.names(1).count("open event") == 4


def test_the_record_has_bytes_device_and_how_long_the_device_copied(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))
    machine.copy_ms = 0.002

    def program() -> None:
        x = machine.array(np.ones(100))
        move(x)
        with pytest.raises(MismatchError):
            move(machine.array(np.ones(10 + dist.get_rank())))

    run(program)
    for rank, name in ((0, "send"), (1, "recv")):
        good, bad = [
            op for op in read_record(tmp_path / f"rank{rank:05}.ddr").ops if op.name == name
        ]
        assert good.form is not None
        assert good.form.device == "cuda:0"
        assert (good.seq, good.status_label, good.form.nbytes) == (1, "ok", 400)
        assert good.ended_ns is not None
        assert good.started_ns is not None
        assert good.ended_ns - good.started_ns == 2_000
        assert (bad.seq, bad.status_label) == (2, "mismatch")
        assert good.group is not None
        assert good.group.desc == "world"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("side", [0, 1])
def test_a_limit_that_is_over_ends_it_on_both_sides(
    machine: Machine, side: int, is_async: bool
) -> None:
    """Rank `side` waits for a message that the other rank never begins."""

    def program() -> None:
        if dist.get_rank() != side:
            with pytest.raises(DistError):
                dist.all_reduce(np.ones(1))
            return
        x = machine.array([1.0])
        with pytest.raises(OpTimeout) as late:
            move(x, 0.2, is_async=is_async)
        assert ("send" if side == 0 else "recv") in late.value.what

    with pytest.raises(DistError):  # the group is broken: run_threads says so
        run(lambda: (program(), dist.barrier()))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_copy_that_hangs_is_ended_by_the_limit_and_one_that_fails_at_once(
    machine: Machine, is_async: bool
) -> None:
    for how, expected in (("hangs", OpTimeout), ("fails", DistBackendError)):
        getattr(machine, how).add(1)

        def program(expected: type[DistError] = expected) -> str:
            x = machine.array([1.0])
            with pytest.raises(DistError) as ended:
                move(x, 0.3 if dist.get_rank() else None, is_async=is_async)
            if dist.get_rank() == 1:
                assert isinstance(ended.value, expected)
            return ended.value.what

        told = run(program)
        if how == "fails":
            assert told[1] == "recv on group 'world' failed on the GPU: CudaError: 700"
            assert "recv on group 'world' failed on the GPU" in told[0]
        getattr(machine, how).clear()


def test_a_sender_that_gives_up_while_its_memory_is_read_ends_the_recv(machine: Machine) -> None:
    machine.hangs.add(1)

    def program() -> None:
        x = machine.array([1.0])
        if dist.get_rank() == 0:
            with pytest.raises(OpTimeout):
                dist.send(x, 1, timeout=timedelta(seconds=0.2))
            machine.hangs.clear()
        else:
            with pytest.raises(CollectiveError) as ended:
                dist.recv(x, 0)
            assert "rank 0" in str(ended.value)

    run(program)


def test_an_interrupt_while_the_device_copies_ends_both_sides(machine: Machine) -> None:
    machine.interrupts.add(1)

    def program() -> None:
        x = machine.array([1.0])
        if dist.get_rank() == 1:
            with pytest.raises(KeyboardInterrupt):
                move(x)
        else:
            with pytest.raises(DistError) as ended:
                move(x)
            assert "rank 1" in str(ended.value)
            assert "recv on group 'world' was interrupted" in str(ended.value)

    run(program)


def test_nothing_is_offered_to_a_rank_of_another_host(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_TRANSPORT", "tcp")  # each rank is a host by itself

    def program() -> float:
        x = machine.array(np.full(1 << 16, 4.0 - dist.get_rank()))
        move(x)
        return float(x.host[-1])

    assert run(program) == [4.0, 4.0]
    assert machine.names(0) == []
    assert machine.names(1) == ["copy"]  # from the host


def test_who_knows_of_no_offers_is_offered_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank of an earlier version has not said that it takes them."""
    monkeypatch.setattr("distdbg.runtime.backends.gpu.capabilities.MESSAGES", 2)

    def program() -> float:
        if dist.get_rank() == 0:
            monkeypatch.setattr("distdbg.runtime.backends.gpu.capabilities.MESSAGES", 1)
        dist.barrier()
        x = machine.array([4.0 - dist.get_rank()])
        move(x)
        return float(x.host[0])

    assert run(program) == [4.0, 4.0]
    assert machine.names(0) == machine.names(1) == []


def test_an_abort_ends_messages_in_flight(machine: Machine) -> None:
    def program() -> None:
        group: Any = dist.group.WORLD
        other = 1 - dist.get_rank()
        x, y = machine.array([1.0]), machine.array([1.0])
        # Neither has another side.
        works = [dist.irecv(x, other, tag=6), dist.isend(y, other, tag=5)]
        dist.barrier()
        if dist.get_rank() == 0:
            group.abort()
        for work in works:
            assert work is not None
            with pytest.raises(DistError):
                work.wait()

    run(program)


def test_messages_to_oneself_go_through_the_host(machine: Machine) -> None:
    def program() -> float:
        x, y = machine.array([1.0]), machine.array([0.0])
        work = dist.irecv(y, dist.get_rank())
        assert work is not None
        dist.send(x, dist.get_rank())
        work.wait()
        return float(y.host[0])

    assert run(program) == [1.0, 1.0]
    assert machine.names(0) == []


def test_an_own_message_may_meet_a_recv_from_any_source(machine: Machine) -> None:
    def program() -> float:
        x, y = machine.array([1.0]), machine.array([0.0])
        sent = dist.isend(x, dist.get_rank())
        assert dist.recv(y) == dist.get_rank()
        assert sent is not None
        sent.wait()
        return float(y.host[0])

    assert run(program) == [1.0, 1.0]


def one_is_killed(who: int) -> str:
    # A GPU of its own for each process: nothing can be opened.
    machine = Machine()
    machine.cannot |= {(0, "open"), (1, "open")}
    driver._driver = machine.driver()
    dist.init_process_group()
    x = machine.array([1.0])
    move(x)
    dist.barrier()
    if dist.get_rank() == who:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        dist.send(machine.array([1.0]), 1) if who else dist.recv(x, 0)
    return lost.value.what


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_is_killed_is_told(ranks: Callable[..., list[Any]], who: int) -> None:
    env = {"DISTDBG_GPU_IPC": "always", "PYTHONFAULTHANDLER": ""}
    result = ranks(
        one_is_killed, 2, timeout=60.0, env=env, expect_exit={who: -signal.SIGKILL}, who=who
    )
    assert f"rank {who}" in result[1 - who]
