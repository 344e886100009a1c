"""What the others are told of a rank that gave up: the op that it was in, not the one before."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError, OpTimeout, RankLeft


def poll_for(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)  # who is polled for announces nothing


def interrupt_in(function: str) -> None:
    """Interrupt this thread, the main one, when it has stood still in a call of `function`."""
    main = threading.get_ident()
    seen: list[object] = []

    def stands_still() -> bool:
        frame = top = sys._current_frames()[main]
        while frame is not None and frame.f_code.co_name != function:
            frame = frame.f_back  # type: ignore[assignment]
        place = None if frame is None else (top.f_code, top.f_lasti)
        seen[:] = [*seen, place] if seen and seen[-1] == place else [place]
        return place is not None and len(seen) > 40

    def run() -> None:
        poll_for(stands_still, f"the main thread does not wait in {function}")
        _thread.interrupt_main()

    threading.Thread(target=run).start()


def give_up_a_recv(how: str) -> str:
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.barrier()
    store = dist.group.WORLD.get_group_store()
    if dist.get_rank() == 1:
        if how == "was interrupted":
            interrupt_in("recv")
        with pytest.raises((OpTimeout, KeyboardInterrupt)):
            dist.recv(np.ones(1), 0, timeout=0.3 if how == "timed out" else None)
        store.set("over", "1")
        store.wait(["reported"], timedelta(seconds=60))  # it lives on, so that only the group tells
        return ""
    store.wait(["over"], timedelta(seconds=60))
    with pytest.raises(CollectiveError) as caught:
        dist.all_reduce(np.ones(1))
    store.set("reported", "1")
    return str(caught.value).splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["timed out", "was interrupted"])
def test_a_recv_that_was_given_up_has_no_number(how: str, ranks: Callable[..., list[Any]]) -> None:
    assert ranks(give_up_a_recv, 2, how=how)[0].endswith(f" {how} in a send or recv")


def interrupt_destroy(folder: str) -> str:
    has_left = Path(folder, "rank 1 has left")
    dist.init_process_group()
    if dist.get_rank() == 1:
        dist.all_reduce(np.ones(1), async_op=True)
        interrupt_in("destroy_process_group")
        with suppress(KeyboardInterrupt):
            dist.destroy_process_group()
        has_left.touch()
        return ""
    poll_for(has_left.exists, "rank 1 has not left")
    with pytest.raises(CollectiveError) as caught:
        dist.all_reduce(np.ones(1))
    return str(caught.value).splitlines()[0]


def test_a_destroy_that_was_interrupted_is_told_as_one(
    ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    words = "rank 1 closed the group while ops were in flight"
    assert words in ranks(interrupt_destroy, 2, folder=str(tmp_path))[0]


def call_twice_after_a_rank_left() -> list[str]:
    dist.init_process_group()
    dist.barrier()
    if dist.get_rank() == 1:
        return []
    said = []
    for _ in range(2):
        with pytest.raises(RankLeft) as caught:
            dist.all_reduce(np.ones(1))
        said.append(str(caught.value).partition(" on group")[0])
    return said


def test_an_op_that_was_not_begun_has_the_number_that_would_have_been_its(
    ranks: Callable[..., list[Any]],
) -> None:
    assert ranks(call_twice_after_a_rank_left, 2)[0] == ["all_reduce #2", "all_reduce #3"]
