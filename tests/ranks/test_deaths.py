"""A rank that goes away at any moment: the others learn who and how, and nothing is left behind."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError, DistError, PeerLost

VICTIM = 1


def end(how: str) -> None:
    # The tests' interpreters print stacks on fatal signals; this death is meant.
    faulthandler.disable()
    sys.stdout.flush()
    match how:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "SIGSEGV":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit 3":
            os._exit(3)


def wait_in(op: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    x = np.ones(1 << 16)
    match op:
        case "all_reduce":
            dist.all_reduce(x)
        case "async":
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            work.wait()
        case "recv":
            dist.recv(x, src=VICTIM)
        case "send":
            dist.send(x, dst=VICTIM)
        case "irecv":
            work = dist.irecv(x, src=VICTIM)
            assert work is not None
            work.wait()
        case "subgroup":
            raise AssertionError((rank, size))


def one_dies(how: str, op: str) -> dict[str, Any] | None:
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.barrier()
    if dist.get_rank() == VICTIM:
        end(how)
    start = time.monotonic()
    with pytest.raises(PeerLost) as caught:
        wait_in(op)
    waited_s = time.monotonic() - start
    with pytest.raises(DistError):  # and the group says so from now on
        dist.barrier()
    dist.destroy_process_group()
    return {"peer": caught.value.peer, "how": caught.value.how, "waited_s": waited_s,
            "text": str(caught.value)}  # fmt: skip


def one_leaves() -> dict[str, Any]:
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.barrier()
    if dist.get_rank() == VICTIM:
        dist.destroy_process_group()
        return {}
    with pytest.raises(PeerLost) as caught:
        dist.barrier()
    dist.destroy_process_group()
    return {"peer": caught.value.peer, "how": caught.value.how}


def one_is_interrupted() -> dict[str, Any]:
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.barrier()
    if dist.get_rank() == VICTIM:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            dist.recv(np.ones(3), src=0)
        dist.destroy_process_group()
        return {}
    with pytest.raises(CollectiveError) as caught:
        dist.barrier()
    dist.destroy_process_group()
    return {"text": str(caught.value)}


def segments_of(pid: str) -> set[str]:
    """The inodes of the shared memory that a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps") as file:
            return {line.split()[4] for line in file if "memfd:distdbg" in line}
    except OSError:  # it has ended
        return set()


def all_are_killed(folder: str) -> None:
    dist.init_process_group()
    dist.new_group([0, 1])
    dist.barrier()
    Path(folder, f"segments{dist.get_rank()}").write_text(" ".join(segments_of("self")))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "exit 3"])
def test_a_death_in_a_collective_names_the_rank_and_its_end(
    ranks: Callable[..., list[Any]], how: str
) -> None:
    codes = {"SIGKILL": -signal.SIGKILL, "SIGSEGV": -signal.SIGSEGV, "exit 3": 3}
    words = {
        "SIGKILL": "died (signal 9, SIGKILL)",
        "SIGSEGV": "died (signal 11, SIGSEGV)",
        "exit 3": "exited (code 3)",
    }
    results = ranks(one_dies, 3, how=how, op="all_reduce", expect_exit={VICTIM: codes[how]})
    for rank in (0, 2):
        assert results[rank]["peer"] == VICTIM
        assert results[rank]["how"] == words[how]
        assert results[rank]["text"].startswith(f"rank {VICTIM} {words[how]}; ")
        assert results[rank]["waited_s"] < 30  # long before the op's own 60 s


@pytest.mark.parametrize("op", ["async", "recv", "send", "irecv"])
def test_a_death_is_noticed_in_every_form_of_op(ranks: Callable[..., list[Any]], op: str) -> None:
    results = ranks(one_dies, 2, how="SIGKILL", op=op, expect_exit={VICTIM: -signal.SIGKILL})
    assert results[0]["peer"] == VICTIM
    assert results[0]["waited_s"] < 30


def test_a_rank_that_destroys_its_group_is_named_at_once(ranks: Callable[..., list[Any]]) -> None:
    results = ranks(one_leaves, 3)
    line = one_leaves.__code__.co_firstlineno + 4
    assert [results[rank] for rank in (0, 2)] == [
        {"peer": VICTIM, "how": f"left (destroyed the group at test_deaths.py:{line})"}
    ] * 2


def test_ctrl_c_ends_a_wait_and_tells_the_others(ranks: Callable[..., list[Any]]) -> None:
    results = ranks(one_is_interrupted, 2)
    assert "rank 1 was interrupted" in results[0]["text"]


def test_nothing_stays_when_all_ranks_are_killed(
    ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    killed = {0: -signal.SIGKILL, 1: -signal.SIGKILL}
    ranks(all_are_killed, 2, folder=str(tmp_path), expect_exit=killed)
    segments = set((tmp_path / "segments0").read_text().split())
    assert len(segments) == 2  # of the world and of the new group
    for pid in filter(str.isdigit, os.listdir("/proc")):
        assert not segments & segments_of(pid)
    # Files in /dev/shm are what others leave behind; this test's fixture looks there, too.
    assert not [name for name in os.listdir("/dev/shm") if "distdbg" in name]
