"""Messages of arrays on a GPU that go through pinned memory in pieces: between hosts, and without IPC.

The GPU is a stand-in, and each rank a host by itself where the transport is TCP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError
from distdbg.runtime.backends.gpu import chunks, held_copies, message_pieces
from tests.unit.gpu.moving import copies, move, run
from tests.unit.gpu.stand_in import Machine, SlowDevice

CHUNK = 4096
#: Ten pieces, and one that is shorter.
NBYTES = 10 * CHUNK + 100
PIECES = [CHUNK] * 10 + [100]


@pytest.fixture(autouse=True, params=["", "tcp"], ids=["shared memory", "tcp"])
def _far(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    if request.param:
        monkeypatch.setenv("DISTDBG_TRANSPORT", request.param)
    yield
    assert not held_copies._held
    assert all(nbytes <= message_pieces.PLACES * CHUNK for _, nbytes, _ in machine.pinned)


def values(nbytes: int = NBYTES, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def placed(machine: Machine, array: Any, on_gpu: bool = True) -> Any:
    return machine.array(array, array.dtype) if on_gpu else array.copy()


def host_of(x: Any) -> Any:
    return getattr(x, "host", x)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_one_piece_is_copied_while_others_travel(
    machine: Machine, depth: int, is_async: bool
) -> None:
    """Who waited for each copy before the next would wait for ever from a depth of 2 on."""
    machine.slow = {rank: SlowDevice(depth, len(PIECES)) for rank in (0, 1)}

    def program() -> bool:
        x = placed(machine, values() if dist.get_rank() == 0 else np.zeros(NBYTES, np.uint8))
        move(x, is_async=is_async)
        return bool((x.host == values()).all())

    assert run(program) == [True, True]
    for rank in (0, 1):
        assert copies(machine, rank) == PIECES
        are_queued = most = 0
        for name in machine.names(rank):
            are_queued += (name == "copy") - (name == "copied")
            most = max(most, are_queued)
        assert most <= message_pieces.PLACES


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("on_gpu", [(True, False), (False, True)])
def test_either_side_may_be_on_the_host(
    machine: Machine, on_gpu: tuple[bool, bool], is_async: bool
) -> None:
    def program() -> bool:
        rank = dist.get_rank()
        x = placed(machine, values() * (1 - rank), on_gpu[rank])
        move(x, is_async=is_async)
        return bool((host_of(x) == values()).all())

    assert run(program) == [True, True]
    assert [copies(machine, rank) for rank in (0, 1)] == [PIECES if on else [] for on in on_gpu]


def test_an_array_of_a_chunk_goes_whole_as_before(machine: Machine) -> None:
    def program() -> bool:
        x = placed(machine, values(CHUNK) * (1 - dist.get_rank()))
        move(x)
        return bool((x.host == values(CHUNK)).all())

    assert run(program) == [True, True]
    assert machine.names(0) == machine.names(1) == []


def test_who_cannot_open_memory_gets_pieces_also_where_nothing_is_offered_any_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "on")
    machine.cannot.add((1, "open"))

    def program() -> bool:
        right = True
        for seed in (1, 2):
            x = placed(machine, values(17 * CHUNK, seed) * (1 - dist.get_rank()))
            move(x)
            right = right and bool((x.host == values(17 * CHUNK, seed)).all())
        return right

    assert run(program) == [True, True]
    assert copies(machine, 0) == copies(machine, 1) == [CHUNK] * 34
    assert machine.names(0).count("export") <= 1


def test_memory_that_cannot_be_exported_goes_in_pieces(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "always")
    machine.cannot.add((0, "export"))

    def program() -> bool:
        x = placed(machine, values() * (1 - dist.get_rank()))
        move(x)
        return bool((x.host == values()).all())

    assert run(program) == [True, True]
    assert copies(machine, 0) == PIECES


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("on_gpu", [(True, True), (True, False), (False, True)])
def test_a_difference_is_told_before_anything_is_copied(
    machine: Machine, on_gpu: tuple[bool, bool], is_async: bool
) -> None:
    def program() -> bool:
        rank = dist.get_rank()
        for array in (
            np.zeros(NBYTES // 4 + rank, np.float32),
            np.zeros(NBYTES // 4, [np.float32, np.int32][rank]),
            np.zeros([NBYTES, 8][rank], np.uint8),  # which would be written behind its end
        ):
            with pytest.raises(MismatchError) as differs:
                move(placed(machine, array, on_gpu[rank]), is_async=is_async)
            assert str(differs.value).count("moving.py") == 2  # the lines of both sides
        assert copies(machine, rank) == []
        x = placed(machine, values() * (1 - rank), on_gpu[rank])
        move(x, is_async=is_async)
        return bool((host_of(x) == values()).all())

    assert run(program) == [True, True]


def test_tags_and_any_source_choose_among_pieces(machine: Machine) -> None:
    sizes = {1: 3 * CHUNK, 2: 5 * CHUNK + 4}

    def program() -> Any:
        rank = dist.get_rank()
        works: list[Any] = []
        if rank != 2:
            for tag, nbytes in sizes.items():
                x = placed(machine, np.full(nbytes, 10 * rank + tag, np.uint8))
                works.append(dist.isend(x, 2, tag=tag))
        found = []
        for tag in (2, 1) if rank == 2 else ():
            for _ in range(2):
                x = placed(machine, np.zeros(sizes[tag], np.uint8))
                source = dist.recv(x, tag=tag)
                assert set(x.host.tolist()) == {10 * source + tag}
                found.append((tag, source))
        for work in works:
            work.wait()
        return sorted(found)

    assert run(program, 3)[2] == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_batch_sends_and_receives_in_pieces_at_once(machine: Machine) -> None:
    def program() -> bool:
        rank, size = dist.get_rank(), dist.get_world_size()
        mine = placed(machine, values(seed=rank))
        got = placed(machine, np.zeros(NBYTES, np.uint8))
        ops = [
            dist.P2POp(dist.isend, mine, (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return bool((got.host == values(seed=(rank - 1) % size)).all())

    assert run(program, 3) == [True] * 3


def test_an_irecv_is_on_the_device_though_nobody_waits_for_it(machine: Machine) -> None:
    def program() -> bool:
        x = placed(machine, values() * (1 - dist.get_rank()))
        if dist.get_rank() == 0:
            dist.send(x, 1)
            dist.send(np.ones(1), 1, tag=1)
            return True
        work = dist.irecv(x, 0)
        dist.recv(np.ones(1), 0, tag=1)  # comes after all pieces
        assert work is not None
        while not work.is_completed():
            pass
        return bool((x.host == values()).all())

    assert run(program) == [True, True]


def test_arrays_that_are_not_contiguous_go_in_pieces_too(machine: Machine) -> None:
    def program() -> Any:
        rows = np.arange(3 * CHUNK, dtype=np.float32).reshape(-1, 2) * (1 - dist.get_rank())
        x = machine.array(rows)
        move(x[:, 1])
        return x.host.sum(axis=0).tolist()

    first, second = run(program)
    assert second == [0.0, first[1]]


@pytest.mark.parametrize("seed", range(3))
def test_random_exchanges_arrive_as_they_were_sent(machine: Machine, seed: int) -> None:
    """Sizes below a chunk and above it, and sides, at random; all in flight at once."""
    random = np.random.default_rng(seed)
    sizes = [1, CHUNK, CHUNK + 1, 3 * CHUNK, 9 * CHUNK + 8, 40 * CHUNK]
    plan = [
        (*random.choice(3, 2, replace=False).tolist(), int(random.choice(sizes)), *sides)
        for sides in random.integers(4, size=(30, 2)).astype(bool).tolist()
    ]

    def program() -> list[int]:
        rank = dist.get_rank()
        works: list[tuple[Any, Any, int]] = []
        for number, (source, target, nbytes, from_gpu, to_gpu) in enumerate(plan):
            if rank == source:
                x = placed(machine, values(nbytes, number), from_gpu)
                works.append((dist.isend(x, target, tag=number), None, number))
            elif rank == target:
                x = placed(machine, np.zeros(nbytes, np.uint8), to_gpu)
                works.append((dist.irecv(x, source, tag=number), x, number))
        wrong = []
        for at in np.random.default_rng(rank).permutation(len(works)):
            work, x, number = works[at]
            work.wait()
            if x is not None and not (host_of(x) == values(plan[number][2], number)).all():
                wrong.append(number)
        return wrong

    assert run(program, 3) == [[]] * 3
