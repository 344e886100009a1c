"""Messages that end in the middle of their pieces: limits, errors, interrupts, aborts and deaths.

The GPU is a stand-in, and each rank a host by itself where the transport is TCP.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistBackendError, DistError, OpTimeout, PeerLost
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu import chunks, driver, held_copies
from tests.unit.gpu.moving import copies, move, run
from tests.unit.gpu.stand_in import Machine

CHUNK = 4096
NBYTES = 10 * CHUNK
TRANSPORTS = pytest.mark.parametrize("transport", ["", "tcp"], ids=["shared memory", "tcp"])


@pytest.fixture(autouse=True)
def _small_chunks(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    yield
    held_copies._held.clear()


def use(monkeypatch: pytest.MonkeyPatch, transport: str) -> None:
    if transport:
        monkeypatch.setenv("DISTDBG_TRANSPORT", transport)


def at_the_third_copy(machine: Machine, rank: int, act: Callable[[], object]) -> None:
    """What a rank does, or its device, in the middle of its message."""

    def on_copy(nbytes: int) -> None:
        if dist.get_rank() == rank and len(copies(machine, rank)) == 3:
            act()

    machine.on_copy = on_copy


@TRANSPORTS
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("who", [0, 1])
def test_a_device_that_hangs_in_the_middle_is_ended_by_the_limit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, who: int, is_async: bool
) -> None:
    use(monkeypatch, transport)
    at_the_third_copy(machine, who, lambda: machine.hangs.add(who))

    def program() -> Any:
        x = machine.array(np.zeros(NBYTES), np.uint8)
        with pytest.raises(DistError) as ended:
            move(x, 0.4 if dist.get_rank() == who else None, is_async=is_async)
        return ended.value

    reported = run(program)
    name, others = ["send", "recv"][who], ["send", "recv"][1 - who]
    late, other = reported[who], reported[1 - who]
    pattern = rf"{name} on group 'world' waited \S+ s for this rank's GPU: it (.+) \(tag 0\)"
    found = re.fullmatch(pattern, late.what)
    assert found is not None, late.what
    # As far as the host had seen it when the device hung.
    copied = found[1]
    assert copied in [f"had copied {n * CHUNK} of {NBYTES} bytes" for n in range(3)]
    assert (type(late), late.missing, late.arrived) == (OpTimeout, [who], [1 - who])
    assert f"{others} on group 'world'" in other.what
    assert (
        f"for rank {who} to {'send' if who == 0 else 'receive'} (tag 0): its GPU {copied}"
        in other.what
    )
    assert (type(other), other.missing) == (OpTimeout, [who])
    assert any(f"of {NBYTES} bytes " in line for line in other.details)
    # Nobody else gets the memory that the device may still read or write.
    # Nor the array that it was copied from, or into.
    [held] = held_copies._held
    _, buffer = cast(tuple[Any, DeviceBuffer], held.memory)
    assert buffer.nbytes == NBYTES


@TRANSPORTS
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("who", [0, 1])
def test_a_device_that_fails_in_the_middle_is_told_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, who: int, is_async: bool
) -> None:
    use(monkeypatch, transport)
    at_the_third_copy(machine, who, lambda: machine.fails.add(who))
    name = ["send", "recv"][who]

    def program() -> str:
        x = machine.array(np.zeros(NBYTES), np.uint8)
        with pytest.raises(DistError) as ended:
            move(x, is_async=is_async)
        if dist.get_rank() == who:
            assert isinstance(ended.value, DistBackendError)
        return ended.value.what

    reported = run(program)
    assert reported[who] == f"{name} on group 'world' failed on the GPU: CudaError: 700"
    assert reported[who].partition(":")[0] in reported[1 - who]


@TRANSPORTS
@pytest.mark.parametrize("who", [0, 1])
def test_an_interrupt_in_the_middle_ends_both_sides(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, who: int
) -> None:
    use(monkeypatch, transport)
    at_the_third_copy(machine, who, lambda: machine.interrupts.add(who))

    def program() -> None:
        x = machine.array(np.zeros(NBYTES), np.uint8)
        if dist.get_rank() == who:
            with pytest.raises(KeyboardInterrupt):
                move(x)
            return
        with pytest.raises(DistError) as ended:
            move(x)
        assert f"rank {who}" in str(ended.value)
        assert "was interrupted" in str(ended.value)

    run(program)


@TRANSPORTS
@pytest.mark.parametrize("who", [0, 1])
def test_an_abort_in_the_middle_ends_both_sides(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, who: int
) -> None:
    use(monkeypatch, transport)
    at_the_third_copy(machine, 1, lambda: machine.hangs.add(1))

    def program() -> None:
        x = machine.array(np.zeros(NBYTES), np.uint8)
        is_send = dist.get_rank() == 0
        work = dist.isend(x, 1) if is_send else dist.irecv(x, 0)
        group: Any = dist.group.WORLD
        if dist.get_rank() == who:
            assert machine.has_copied.wait(20.0)
            group.abort()
        assert work is not None
        with pytest.raises(DistError):
            work.wait()

    run(program)


def one_is_killed(who: int) -> list[Any]:
    chunks.CHUNK_NBYTES = CHUNK
    machine = Machine()  # a GPU of its own for each process
    driver._driver = machine.driver()
    dist.init_process_group()
    x = machine.array(np.full(NBYTES, 7 - 7 * dist.get_rank()), np.uint8)
    move(x)
    right = bool((x.host == 7).all())
    if dist.get_rank() == who:

        def die(nbytes: int) -> None:
            if len(copies(machine, who)) == 13:  # the third of the second message
                os.kill(os.getpid(), signal.SIGKILL)

        machine.on_copy = die

    def go_on() -> None:
        for _ in range(
            2
        ):  # a sender is done when all has left it, which may be before its receiver dies
            move(x)

    with pytest.raises(PeerLost) as lost:
        go_on()
    return [right, lost.value.peer, lost.value.what]


@TRANSPORTS
@pytest.mark.ranks
@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_is_killed_in_the_middle_is_told(
    ranks: Callable[..., list[Any]], transport: str, who: int
) -> None:
    env = {"DISTDBG_GPU_IPC": "off", "PYTHONFAULTHANDLER": ""}
    if transport:
        env["DISTDBG_TRANSPORT"] = transport
    result = ranks(
        one_is_killed, 2, timeout=60.0, env=env, expect_exit={who: -signal.SIGKILL}, who=who
    )
    right, peer, what = result[1 - who]
    assert (right, peer) == (True, who)
    assert f"rank {who}" in what


def sender_is_killed_of_three() -> list[Any]:
    """Rank 1 receives from any source; rank 2 lives, and could send."""
    chunks.CHUNK_NBYTES = CHUNK
    machine = Machine()
    driver._driver = machine.driver()
    dist.init_process_group()
    dist.barrier()  # all have made the group before one dies
    rank = dist.get_rank()
    x = machine.array(np.zeros(NBYTES), np.uint8)
    if rank == 0:

        def die(nbytes: int) -> None:
            if len(copies(machine, 0)) == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        machine.on_copy = die
        dist.send(x, 1)
    with pytest.raises(DistError) as ended:
        dist.recv(x if rank == 1 else np.zeros(1), None if rank == 1 else 1)
    return [type(ended.value).__name__, getattr(ended.value, "peer", -1)]


@TRANSPORTS
@pytest.mark.ranks
def test_a_recv_from_any_source_is_told_of_the_rank_that_it_has_met(
    ranks: Callable[..., list[Any]], transport: str
) -> None:
    env = {"DISTDBG_GPU_IPC": "off", "PYTHONFAULTHANDLER": ""}
    if transport:
        env["DISTDBG_TRANSPORT"] = transport
    result = ranks(
        sender_is_killed_of_three, 3, timeout=60.0, env=env, expect_exit={0: -signal.SIGKILL}
    )
    assert result[1] == ["PeerLost", 0]
