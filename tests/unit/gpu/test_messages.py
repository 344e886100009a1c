"""Messages of arrays on a GPU that their receiver takes from the sender's device. The GPU is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import (
    MismatchError,
)
from distdbg.record.reader import read_record
from tests.unit.gpu.moving import copies, move, run
from tests.unit.gpu.stand_in import Machine


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
    reported = [call for call in machine.calls[1] if call[0] in ("open", "close")]
    assert reported == [("open", first), ("close", first), ("open", second), ("close", second)]
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


@pytest.mark.parametrize("seed", range(3))
def test_random_exchanges_arrive_as_they_were_sent(machine: Machine, seed: int) -> None:
    """Sizes, tags and sides at random, all in flight at once, waited for in another order on each rank."""
    random = np.random.default_rng(seed)
    plan = [
        (
            *(int(rank) for rank in random.choice(4, 2, replace=False)),
            int(random.integers(3)),
            int(random.choice([1, 40, 56, 3000, 40000])),
            bool(random.integers(4)),  # most on a GPU
            bool(random.integers(4)),
        )
        for _ in range(40)
    ]
    if seed == 2:
        machine.cannot |= {(3, "open"), (2, "export")}

    def program() -> list[int]:
        rank = dist.get_rank()
        works: list[tuple[Any, Any, int]] = []
        for number, (source, target, tag, count, from_gpu, to_gpu) in enumerate(plan):
            values: Any = np.full(count, float(number), np.float32)
            if rank == source:
                x = machine.array(values) if from_gpu else values
                works.append((dist.isend(x, target, tag=tag), None, number))
            elif rank == target:
                x = machine.array(values * 0) if to_gpu else values * 0
                works.append((dist.irecv(x, source, tag=tag), x, number))
        wrong = []
        for at in np.random.default_rng(rank).permutation(len(works)):
            work, x, number = works[at]
            work.wait()
            if x is not None and not (getattr(x, "host", x) == number).all():
                wrong.append(number)
        return wrong

    # Matched in the order of (source, target, tag), so only equal sizes may follow one another there.
    sizes: dict[tuple[int, int, int], int] = {}
    plan = [(*each[:3], sizes.setdefault(each[:3], each[3]), *each[4:]) for each in plan]
    assert run(program, 4) == [[]] * 4
