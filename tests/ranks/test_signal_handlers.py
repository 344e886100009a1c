"""Ops that a signal handler calls while its thread is in an op of the same group."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError

LIMIT_S = 30.0


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)  # polled: nothing tells of it


def a_handler_calls_an_op(folder: str) -> list[str]:
    dist.init_process_group(timeout=timedelta(seconds=LIMIT_S))
    world: Any = dist.group.WORLD
    native = world.engine.group
    is_refused = Path(folder, "refused")
    refused: list[str] = []

    def handler(*_: Any) -> None:
        with pytest.raises(UsageError) as caught:
            dist.all_reduce(np.ones(2))
        refused.append(str(caught.value))
        is_refused.touch()

    def interrupt() -> None:
        wait_for(lambda: native.facts()[1][1] > at)  # the main thread waits in the barrier's gate
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    if dist.get_rank() == 0:
        wait_for(is_refused.exists)
        dist.barrier()
    else:
        at = native.facts()[1][1]
        signal.signal(signal.SIGUSR2, handler)
        thread = threading.Thread(target=interrupt)
        thread.start()
        dist.barrier()
        thread.join()
    total = np.ones(2)
    dist.all_reduce(total)  # the group goes on
    assert total.tolist() == [2, 2]
    dist.destroy_process_group()
    return refused


def test_a_handlers_op_within_an_op_of_its_thread_is_refused_and_the_group_goes_on(
    ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    first, second = ranks(a_handler_calls_an_op, 2, folder=str(tmp_path))
    assert first == []
    assert second == [
        "all_reduce on group 'world': this thread is in an op of the group; a signal handler that "
        "interrupts it cannot call one"
    ]
