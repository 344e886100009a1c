"""What the others are told of a rank that gave up: the op that it was in, not the one before."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError, OpTimeout, RankLeft


def give_up_a_recv(how: str) -> str:
    dist.init_process_group(timeout=timedelta(seconds=1 if how == "timed out" else 15))
    dist.barrier()
    store = dist.group.WORLD.get_group_store()
    if dist.get_rank() == 1:
        if how == "was interrupted":
            threading.Timer(0.3, _thread.interrupt_main).start()
        with pytest.raises((OpTimeout, KeyboardInterrupt)):
            dist.recv(np.ones(1), 0)
        store.set("over", "1")
        time.sleep(0.5)
        return ""
    store.wait(["over"], timedelta(seconds=10))
    with pytest.raises(CollectiveError) as caught:
        dist.all_reduce(np.ones(1))
    return str(caught.value).splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["timed out", "was interrupted"])
def test_a_recv_that_was_given_up_has_no_number(how: str, ranks: Callable[..., list[Any]]) -> None:
    assert ranks(give_up_a_recv, 2, how=how)[0].endswith(f" {how} in a send or recv")


def interrupt_destroy() -> str:
    dist.init_process_group()
    if dist.get_rank() == 1:
        dist.all_reduce(np.ones(1), async_op=True)
        threading.Timer(0.3, _thread.interrupt_main).start()
        with suppress(KeyboardInterrupt):
            dist.destroy_process_group()
        return ""
    time.sleep(1.0)  # rank 1 has left by now
    with pytest.raises(CollectiveError) as caught:
        dist.all_reduce(np.ones(1))
    return str(caught.value).splitlines()[0]


def test_a_destroy_that_was_interrupted_is_told_as_one(ranks: Callable[..., list[Any]]) -> None:
    words = "rank 1 closed the group while ops were in flight"
    assert words in ranks(interrupt_destroy, 2)[0]


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
