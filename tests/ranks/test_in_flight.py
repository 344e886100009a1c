"""Ops in flight that nobody waits for: each error is told of the op it happened in, and exits are quiet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError, OpTimeout, PeerLost


def differ_twice_before_anybody_waits() -> list[str]:
    dist.init_process_group()
    rank = dist.get_rank()
    works = [dist.all_reduce(np.ones(10 * k + rank), async_op=True) for k in (1, 2)]
    works.append(dist.all_reduce(np.ones(30), async_op=True))
    assert all(work is not None for work in works)
    works[2].wait()
    lines = []
    for work in works[:2]:
        with pytest.raises(MismatchError) as caught:
            work.wait()
        lines.append(str(caught.value).splitlines()[0])
    dist.destroy_process_group()
    return lines


def poll_a_message_from_the_dead() -> int | None:
    dist.init_process_group(timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    x = np.ones(1 << 16)
    if rank == 2:
        return None  # leaves without a word: its process ends
    if rank == 1:
        dist.recv(x, src=0)
        return None
    dist.irecv(x, src=1)  # the first in line; rank 1 is alive and sends nothing
    y = np.ones(3)
    work = dist.irecv(y, src=2)
    assert work is not None
    ended = threading.Event()
    work.get_future().add_done_callback(lambda _: ended.set())
    assert ended.wait(30.0)
    error = work.exception()
    assert isinstance(error, PeerLost)
    return error.peer


def end_while_a_daemon_thread_is_in_an_op() -> None:
    dist.init_process_group()
    if dist.get_rank() == 1:
        dist.barrier()
    is_started = threading.Event()

    def reduce_for_ever() -> None:
        dist.barrier()
        is_started.set()
        while True:
            dist.all_reduce(np.ones(100))

    if dist.get_rank() == 0:
        threading.Thread(target=reduce_for_ever, daemon=True).start()
        assert is_started.wait(30.0)
    else:
        dist.all_reduce(np.ones(100))


def exchange_thousands_of_messages() -> list[float]:
    dist.init_process_group(timeout=timedelta(seconds=60))
    costs = [exchange_messages(count) / count for count in (500, 4000)]
    dist.destroy_process_group()
    return costs


def exchange_messages(count: int) -> float:
    """Check what so many bring, all in flight at once; return the CPU seconds they took."""
    rank = dist.get_rank()
    peer = 1 - rank
    sent = [np.full(k % 9, (k + rank) % 251, np.uint8) for k in range(count)]
    got = [np.zeros(k % 9, np.uint8) for k in range(count)]
    dist.barrier()
    began_s = time.process_time()
    works = [dist.isend(x, peer, tag=k % 7) for k, x in enumerate(sent)]
    works += [dist.irecv(x, peer, tag=k % 7) for k, x in enumerate(got)]
    for work in works:
        assert work is not None
        work.wait()
    took_s = time.process_time() - began_s
    assert all((x == (k + peer) % 251).all() for k, x in enumerate(got))
    return took_s


def wait_less_than_it_takes() -> str:
    dist.init_process_group(timeout=timedelta(seconds=60))
    x = np.ones(3)
    text = ""
    if dist.get_rank() == 0:
        work = dist.irecv(x, src=1)
        assert work is not None
        with pytest.raises(OpTimeout) as caught:
            work.wait(timedelta(seconds=0.01))
        text = str(caught.value)
        dist.send(x, dst=1)
        work.wait()
    else:
        dist.recv(x, src=0)
        dist.send(x, dst=0)
    dist.destroy_process_group()
    return text


def test_each_asynchronous_mismatch_is_told_of_its_own_op(ranks: Callable[..., list[Any]]) -> None:
    seen = ranks(differ_twice_before_anybody_waits, 2)
    assert seen[0] == seen[1]
    assert "all_reduce #1 " in seen[0][0]
    assert "float64[10] on rank 0, float64[11] on rank 1" in seen[0][0]
    assert "all_reduce #2 " in seen[0][1]
    assert "float64[20] on rank 0, float64[21] on rank 1" in seen[0][1]


def test_a_dead_sender_is_noticed_behind_one_that_lives(ranks: Callable[..., list[Any]]) -> None:
    # Rank 1 is in a recv that never comes: it ends with an error once rank 0 is gone.
    values = ranks(poll_a_message_from_the_dead, 3, expect_exit={1: 1})
    assert values[0] == 2


def test_a_daemon_thread_in_an_op_does_not_disturb_the_exit(
    ranks: Callable[..., list[Any]],
) -> None:
    for _ in range(3):
        ranks(end_while_a_daemon_thread_is_in_an_op, 2)


@pytest.mark.parametrize("single_copy", ["0", "1"])
@pytest.mark.slow
def test_thousands_of_messages_in_flight_take_linear_time(
    ranks: Callable[..., list[Any]], single_copy: str
) -> None:
    # Eight times as many cost about as much each; eight times as much when every op looked at all.
    env = {"DISTDBG_SINGLE_COPY": single_copy}
    for few, many in ranks(exchange_thousands_of_messages, 2, env=env):
        assert many < 4 * few


def test_a_wait_that_ends_early_says_that_the_op_goes_on(
    ranks: Callable[..., list[Any]],
) -> None:
    text = ranks(wait_less_than_it_takes, 2)[0]
    assert "the op continues" in text
    assert "unusable" not in text
