"""Programs that are legal by tags and streams: no message or op may wait for one that the program ends later.

The GPU is a stand-in, and each rank a host by itself where the transport is TCP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import OpTimeout
from distdbg.runtime.backends.gpu import chunks, held_copies
from tests.unit.gpu.moving import move, run
from tests.unit.gpu.stand_in import Machine

CHUNK = 4096
NBYTES = 10 * CHUNK + 100
#: Tag of a message on the host.
GO = 9


@pytest.fixture(
    autouse=True,
    params=[("off", ""), ("off", "tcp"), ("always", "")],
    ids=["pieces", "pieces over tcp", "from the device"],
)
def _way(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    ipc, transport = request.param
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    monkeypatch.setenv("DISTDBG_GPU_IPC", ipc)
    if transport:
        monkeypatch.setenv("DISTDBG_TRANSPORT", transport)
    yield
    assert not held_copies._held


def placed(machine: Machine, value: int) -> Any:
    return machine.array(np.full(NBYTES, value), np.uint8)


@pytest.mark.parametrize("who", [0, 1])
def test_an_array_that_is_not_ready_holds_up_no_other_message(machine: Machine, who: int) -> None:
    """Its program goes on only when the second message has arrived."""

    def program() -> list[bool]:
        rank = dist.get_rank()
        first, second = (placed(machine, tag * (1 - rank)) for tag in (1, 2))
        go_on = machine.hold() if rank == who else None
        start = dist.isend if rank == 0 else dist.irecv
        works: list[Any] = [start(first, 1 - rank, tag=1)]
        machine.let_go()
        works.append(start(second, 1 - rank, tag=2))
        works[1].wait()
        assert not works[0].is_completed()
        dist.barrier()
        if go_on is not None:
            go_on.set()
        works[0].wait()
        return [set(x.host.tolist()) == {tag} for tag, x in ((1, first), (2, second))]

    assert run(program) == [[True, True]] * 2


@pytest.mark.parametrize("who", [0, 1])
def test_an_array_that_is_never_ready_is_told_as_such(machine: Machine, who: int) -> None:
    def program() -> str:
        rank = dist.get_rank()
        x = placed(machine, 1 - rank)
        if rank == who:
            machine.hold()
        with pytest.raises(OpTimeout) as late:
            move(x, 0.3 if rank == 0 else None)
        return str(late.value)

    reported = run(program)
    if who == 0 and os.environ["DISTDBG_GPU_IPC"] == "always":
        assert "no copy was begun: the sender's stream had not reached its call" in reported[1]
    else:
        assert "no copy was begun: this program's stream had not reached the call" in reported[who]
        assert f"this rank's GPU: it had copied 0 of {NBYTES} bytes" in reported[who]


def test_messages_are_received_in_the_other_order_of_their_tags(machine: Machine) -> None:
    """Around a ring, each rank blocking in the one that was sent last."""

    def program() -> list[int]:
        rank, size = dist.get_rank(), dist.get_world_size()
        works: list[Any] = [
            dist.isend(placed(machine, 10 * rank + tag), (rank + 1) % size, tag=tag)
            for tag in range(4)
        ]
        found = []
        for tag in (3, 1, 2, 0):
            x = placed(machine, 0)
            dist.recv(x, (rank - 1) % size, tag=tag)
            [value] = set(x.host.tolist())
            found.append(value)
        for work in works:
            work.wait()
        return found

    assert run(program, 3) == [[10 * source + tag for tag in (3, 1, 2, 0)] for source in (2, 0, 1)]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_message_and_an_op_of_all_ranks_do_not_wait_for_each_other(
    machine: Machine, is_first: bool
) -> None:
    """Rank 0 sends before the op; rank 1 receives after it, or has asked for the message before."""

    def program() -> list[bool]:
        rank = dist.get_rank()
        x = placed(machine, 7 * (1 - rank))
        mine, got = placed(machine, rank), placed(machine, 9)
        splits = [NBYTES // 2, NBYTES - NBYTES // 2]
        takes = [splits[rank]] * 2
        got = machine.array(np.zeros(sum(takes)), np.uint8)
        work: Any = None
        if rank == 0 and is_first:
            dist.send(x, 1)  # blocks until rank 1 has it, which has asked for it
        elif rank == 0:
            work = dist.isend(x, 1)
        elif is_first:
            work = dist.irecv(x, 0)
        dist.all_to_all_single(got, mine, takes, splits)
        if rank == 1 and not is_first:
            dist.recv(x, 0)
        if work is not None:
            work.wait()
        halves = [set(half.tolist()) for half in np.split(got.host, 2)]
        return [set(x.host.tolist()) == {7}, halves == [{0}, {1}]]

    assert run(program) == [[True, True]] * 2


def test_one_receiver_that_does_not_come_holds_up_no_other(machine: Machine) -> None:
    def program() -> bool:
        rank = dist.get_rank()
        if rank == 0:
            works: list[Any] = [dist.isend(placed(machine, 5), peer) for peer in (1, 2)]
            for work in reversed(works):
                work.wait()
            return True
        x = placed(machine, 0)
        if rank == 1:
            dist.recv(np.zeros(1), 2, tag=GO)  # which has its own by then
        dist.recv(x, 0)
        if rank == 2:
            dist.send(np.zeros(1), 1, tag=GO)
        return set(x.host.tolist()) == {5}

    assert run(program, 3) == [True] * 3
