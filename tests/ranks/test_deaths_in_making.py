"""A rank that dies while a group is being made is named long before the timeout."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError, PeerLost, RendezvousError
from distdbg.runtime.groups import creation
from distdbg.runtime.rendezvous import presence
from distdbg.runtime.rendezvous.assemble import JoinRound
from distdbg.runtime.rendezvous.process import identify_self

#: Far below the group's own 60 s, and far above what it takes on a busy machine.
SOON_S = 30.0


def kill_self(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_new_group(victim: int, where: str) -> dict[str, Any]:
    if where == "init":
        place = patch.object(creation, "make_engine", kill_self)
        if int(os.environ["RANK"]) == victim:
            place.start()
        start = time.monotonic()
        with pytest.raises(PeerLost) as caught:
            dist.init_process_group(timeout=timedelta(seconds=60))
        return {
            "peer": caught.value.peer,
            "how": caught.value.how,
            "waited_s": time.monotonic() - start,
        }
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.barrier()
    if dist.get_rank() == victim:
        name = "meet" if where == "before" else "make_engine"
        patch.object(creation, name, kill_self).start()
    start = time.monotonic()
    with pytest.raises(PeerLost) as caught:
        dist.new_group()
    waited_s = time.monotonic() - start
    dist.destroy_process_group()
    return {"peer": caught.value.peer, "how": caught.value.how, "waited_s": waited_s}


def die_after_the_announcement() -> dict[str, Any] | None:
    rank = int(os.environ["RANK"])
    if rank == 2:
        return None  # never comes, so that the others wait
    if rank == 1:
        patch.object(JoinRound, "wait", kill_self).start()
    start = time.monotonic()
    with pytest.raises(RendezvousError) as caught:
        dist.init_process_group(timeout=timedelta(seconds=60))
    return {"what": caught.value.what, "waited_s": time.monotonic() - start}


def die_before_the_store(victim: int, folder: str) -> str | None:
    rank = int(os.environ["RANK"])
    wait_until_all_are_older_than_their_files(rank, Path(folder))
    if rank == victim:
        # The package has a function of the name of this module.
        patch.object(sys.modules["distdbg.runtime.rendezvous.join"], "reach", kill_self).start()
    with pytest.raises(RendezvousError) as caught:
        dist.init_process_group(timeout=timedelta(seconds=60))
    return caught.value.what


def wait_until_all_are_older_than_their_files(rank: int, folder: Path) -> None:
    """Of what is left before a rank was started it takes no notice, and the kernel counts in 10 ms."""
    deadline = time.monotonic() + 30
    born_ns = (identify_self().started + 1) * presence._TICK_NS
    while time.clock_gettime_ns(time.CLOCK_BOOTTIME) < born_ns:
        time.sleep(0.001)
    (folder / f"here{rank}").touch()
    while not all((folder / f"here{other}").exists() for other in range(3)):
        assert time.monotonic() < deadline, "the other ranks did not start"
        time.sleep(0.005)  # nothing tells about a file of another process


def wait_until_it_stands_in_all_reduce(thread: int) -> None:
    """Return when a thread has been at the same place below all_reduce for a while."""
    deadline = time.monotonic() + 120
    seen = 0
    last: object = None
    while seen < 40:
        assert time.monotonic() < deadline, "it does not wait in all_reduce"
        frame = top = sys._current_frames()[thread]
        while frame is not None and frame.f_code.co_name != "all_reduce":
            frame = frame.f_back  # type: ignore[assignment]
        place = None if frame is None else (top.f_code, top.f_lasti)
        seen = seen + 1 if place is not None and place == last else 0
        last = place
        time.sleep(0.005)  # a thread that waits announces nothing


def interrupt_the_second_thread() -> dict[str, Any] | None:
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.barrier()
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    if dist.get_rank() == 1:
        store.wait(["interrupted"])
        with pytest.raises(CollectiveError):  # the same op as the other's, but too late
            dist.all_reduce(np.ones(3))
        dist.destroy_process_group()
        return None
    errors: list[BaseException] = []
    is_started = threading.Event()

    def reduce() -> None:
        is_started.set()
        try:
            dist.all_reduce(np.ones(3))
        except CollectiveError as error:
            errors.append(error)

    thread = threading.Thread(target=reduce)
    thread.start()
    is_started.wait()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    assert thread.ident is not None
    wait_until_it_stands_in_all_reduce(thread.ident)
    main = threading.get_ident()

    def interrupt() -> None:
        wait_until_it_stands_in_all_reduce(main)
        os.kill(os.getpid(), signal.SIGALRM)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dist.all_reduce(np.ones(3))
    waited_s = time.monotonic() - start
    interrupting.join(30.0)
    thread.join(30.0)
    store.set("interrupted", "1")
    dist.destroy_process_group()
    return {"waited_s": waited_s, "errors": [str(error) for error in errors]}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "after", "init"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_death_in_the_making_of_a_group_is_named(
    ranks: Callable[..., list[Any]], victim: int, where: str
) -> None:
    killed = {victim: -signal.SIGKILL}
    results = ranks(die_in_new_group, 3, victim=victim, where=where, expect_exit=killed)
    for rank in {0, 1, 2} - {victim}:
        assert results[rank]["peer"] == victim
        # Who dies in init may be gone before anybody watches it; then the kernel does not tell.
        words = {"died (signal 9, SIGKILL)"} | ({"is gone"} if where == "init" else set())
        assert results[rank]["how"] in words
        assert results[rank]["waited_s"] < SOON_S


@pytest.mark.parametrize("victim", [0, 1])
def test_a_death_before_the_store_is_reached_ends_the_rendezvous(
    ranks: Callable[..., list[Any]], tmp_path: Path, victim: int
) -> None:
    killed = {victim: -signal.SIGKILL}
    results = ranks(
        die_before_the_store, 3, victim=victim, folder=str(tmp_path), expect_exit=killed
    )
    for rank in {0, 1, 2} - {victim}:
        assert results[rank].startswith(f"rank {victim} died while the ranks were meeting")


def test_a_death_after_the_announcement_ends_the_rendezvous(
    ranks: Callable[..., list[Any]],
) -> None:
    results = ranks(die_after_the_announcement, 3, expect_exit={1: -signal.SIGKILL})
    assert results[0]["what"].startswith("rank 1 died while the ranks were meeting")
    assert results[0]["waited_s"] < SOON_S


def test_ctrl_c_reaches_a_thread_that_waits_for_its_turn(ranks: Callable[..., list[Any]]) -> None:
    results = ranks(interrupt_the_second_thread, 2)
    assert results[0]["waited_s"] < SOON_S
    assert "rank 0 was interrupted" in results[0]["errors"][0]
