"""Long arrays that both sides copy: one that dies or gives up while the other one writes to its array."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import gc
import os
import platform
import signal
import struct
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError, PeerLost

#: Of float32; each half takes many pieces.
COUNT = 32 << 20
DIRECT = "broadcast=direct,all_reduce=direct,all_gather=direct,all_to_all=direct,pushed_nbytes=0"
#: Op -> of the array of rank 1, an element that rank 0 writes early.
WRITTEN = {
    "broadcast": COUNT // 2,
    "send": COUNT // 2,
    "all_reduce": 0,
    "all_gather": 0,
    "all_to_all": 0,
}


def mover(op: str, x: Any) -> Callable[[], object]:
    """An op in which rank 0 writes into `x` of rank 1, which is ones afterwards."""
    is_sender = dist.get_rank() == 0
    match op:
        case "broadcast":
            return partial(dist.broadcast, x, src=0)
        case "send":
            return partial(dist.send, x, 1) if is_sender else partial(dist.recv, x, 0)
        case "all_reduce":
            return partial(dist.all_reduce, x)
        case "all_gather":
            return partial(dist.all_gather_into_tensor, x, np.ones(x.size // 2, np.float32))
        case _:
            return partial(dist.all_to_all_single, x, np.ones_like(x))


def call_for_ever(move: Callable[[], object]) -> None:
    while True:
        move()


def one_dies(op: str, victim: int) -> dict[str, Any]:
    os.environ["DISTDBG_TUNE"] = DIRECT
    dist.init_process_group()
    move = mover(op, np.ones(COUNT, np.float32))
    move()
    if dist.get_rank() == victim:
        faulthandler.disable()  # this death is meant
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGKILL]).start()
    began = time.monotonic()
    with pytest.raises(PeerLost) as caught:
        call_for_ever(move)
    with suppress(DistError):
        dist.destroy_process_group()
    return {"peer": caught.value.peer, "took_s": time.monotonic() - began}


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("op", WRITTEN)
def test_a_death_while_both_copy_is_named(
    ranks: Callable[..., list[Any]], op: str, victim: int
) -> None:
    results = ranks(one_dies, 2, op=op, victim=victim, expect_exit={victim: -signal.SIGKILL})
    found = results[1 - victim]
    assert found["peer"] == victim
    assert found["took_s"] < 30


def stop_as_soon_as_it_writes(pid: int, x: Any, at: int) -> None:
    until = time.monotonic() + 30
    while x[at] != 1 and time.monotonic() < until:
        pass  # it is over in milliseconds
    os.kill(pid, signal.SIGSTOP)


def one_gives_up(op: str, is_known: bool) -> dict[str, Any]:
    os.environ["DISTDBG_TUNE"] = DIRECT
    dist.init_process_group()
    if is_known:  # so that the next call like these runs without Python
        for _ in range(3):
            mover(op, np.ones(COUNT, np.float32))()
    is_sender = dist.get_rank() == 0
    pid = np.array([os.getpid()])
    dist.broadcast(pid, src=0)
    x = np.full(COUNT, float(is_sender), np.float32)
    move = mover(op, x)
    found: dict[str, Any] = {}
    if is_sender:
        with pytest.raises(DistError):
            move()
    else:
        thread = threading.Thread(
            target=stop_as_soon_as_it_writes, args=[int(pid[0]), x, WRITTEN[op]]
        )
        thread.start()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            move()
        found["took_s"] = time.monotonic() - began
        thread.join()
        found["was_cut_off"] = bool((x == 0).any())
        x.fill(7)
        os.kill(int(pid[0]), signal.SIGCONT)
        time.sleep(0.5)  # nothing says that a rank writes no more
        found["is_as_it_was"] = bool((x == 7).all())
        alive = weakref.ref(x)
        del x, thread, move
        gc.collect()
        found["is_kept"] = alive() is not None
    with suppress(DistError):
        dist.destroy_process_group()
    return found


@pytest.mark.parametrize(
    ("op", "is_known"),
    [*((op, False) for op in WRITTEN), ("all_gather", True), ("all_reduce", True)],
)
def test_a_rank_that_has_given_up_is_not_written_to(
    ranks: Callable[..., list[Any]], op: str, is_known: bool
) -> None:
    found = ranks(one_gives_up, 2, op=op, is_known=is_known)[1]
    assert found["was_cut_off"]
    assert found["is_as_it_was"]
    assert found["took_s"] < 10
    # Where it waited for the writer in vain, beyond the second after which it was interrupted.
    assert found["is_kept"] == (found["took_s"] > 1.9)


def one_leaves() -> dict[str, Any]:
    """Another thread destroys the group while the sender has yet to hear where a half goes."""
    os.environ["DISTDBG_TUNE"] = DIRECT
    dist.init_process_group()
    is_sender = dist.get_rank() == 1  # rank 0 serves the store
    pid = np.array([os.getpid()])
    dist.broadcast(pid, src=1)
    x = np.full(COUNT, float(is_sender), np.float32)
    if is_sender:
        try:
            dist.send(x, 0)
        except DistError:
            return {}
        return {"sent": True}
    time.sleep(0.5)  # nothing announces that a rank has offered its message, and sleeps
    os.kill(int(pid[0]), signal.SIGSTOP)
    errors: list[BaseException] = []

    def receive() -> None:
        try:
            dist.recv(x, 1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    while x[0] != 1:  # this rank's own half
        time.sleep(0.01)  # nothing announces what the kernel copies
    time.sleep(0.2)  # so that it waits for the other half, which nothing announces either
    dist.destroy_process_group()
    thread.join()
    x.fill(7)
    os.kill(int(pid[0]), signal.SIGCONT)
    time.sleep(0.5)  # nothing says that a rank writes no more
    return {"error": type(errors[0]).__name__, "is_as_it_was": bool((x == 7).all())}


def test_an_array_of_a_rank_that_left_is_not_written_to(ranks: Callable[..., list[Any]]) -> None:
    receiver, sender = ranks(one_leaves, 2)
    assert sender == {}
    assert receiver == {"error": "UsageError", "is_as_it_was": True}


def forbid_writing_to_processes() -> None:
    """As the sandbox of a container may; for this thread and those that it starts."""
    number = {"x86_64": 311, "aarch64": 271}[platform.machine()]  # of process_vm_writev
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for option in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # no new privileges; a filter
        if libc.prctl(*option) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {option[0]}")


def both_are_forbidden(op: str) -> bool:
    forbid_writing_to_processes()
    os.environ["DISTDBG_TUNE"] = DIRECT
    dist.init_process_group()
    x = np.full(COUNT, 1.0 - dist.get_rank(), np.float32)
    mover(op, x)()
    dist.destroy_process_group()
    return bool((x == 1).all())


@pytest.mark.parametrize("op", WRITTEN)
def test_where_no_process_may_be_written_to_slots_are_used(
    ranks: Callable[..., list[Any]], op: str
) -> None:
    assert ranks(both_are_forbidden, 2, op=op) == [True, True]


def both_send_and_receive(counts: list[int], tune: str) -> list[bool]:
    """Each rank and its neighbour."""
    os.environ["DISTDBG_TUNE"] = tune
    dist.init_process_group()
    rank, peer = dist.get_rank(), dist.get_rank() ^ 1
    right = []
    for count in counts:
        mine, theirs = (np.arange(count, dtype=np.float32) + r for r in (rank, peer))
        x = np.empty(count, np.float32)
        work = dist.irecv(x, peer)
        dist.send(mine, peer)
        work.wait()
        right.append(bool((x == theirs).all()))
        x.fill(-1)
        if rank < peer:
            dist.send(mine, peer)
            dist.recv(x)  # from any rank
        else:
            dist.recv(x)
            dist.send(mine, peer)
        right.append(bool((x == theirs).all()))
    dist.destroy_process_group()
    return right


def test_halves_meet_also_in_an_irecv_and_in_a_recv_from_any_rank(
    ranks: Callable[..., list[Any]],
) -> None:
    counts = [8_191, 10_001, 3_000_003]
    assert ranks(both_send_and_receive, 2, counts=counts, tune=DIRECT) == [[True] * 6] * 2


@pytest.mark.parametrize("pushed_nbytes", [0, 16384])
def test_messages_of_ranks_that_share_cores_come_by_either_way(
    ranks: Callable[..., list[Any]], pushed_nbytes: int
) -> None:
    """On two cores; what is longer than that is read by the receiver instead of coming with its offer."""
    counts = [1023, 1025, 4096, 4097, 20_000, 300_001]
    tune = f"pushed_nbytes={pushed_nbytes}"
    found = ranks(both_send_and_receive, 4, counts=counts, tune=tune)
    assert found == [[True] * 12] * 4


def one_gathers(counts: list[int]) -> list[bool]:
    os.environ["DISTDBG_TUNE"] = "all_gather=direct"
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    right = []
    for count in counts:
        mine = np.arange(count, dtype=np.float32) + rank
        blocks = [np.empty(count, np.float32) for _ in range(size)] if rank == 1 else None
        dist.gather(mine, blocks, dst=1)
        right += [bool((block == mine + r - rank).all()) for r, block in enumerate(blocks or ())]
    dist.destroy_process_group()
    return right


def test_all_ranks_write_to_the_root_of_a_gather(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(one_gathers, 3, counts=[10_001, 700_003])[1] == [True] * 6
