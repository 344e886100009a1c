"""A thread that waits for an op that it began earlier is seen at its wait, by whoever reads the record."""

from __future__ import annotations

import os
import signal
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
from distdbg.errors import DistError, OpTimeout
from distdbg.record.entries import WorkWaitEntry
from distdbg.record.folders import record_name
from distdbg.record.rank_words import where_is
from distdbg.record.reader import RecordFile, read_record
from distdbg.runtime.process.world import current


def poll_for(look: Callable[[], Any], timeout_s: float, why: str) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, why
        time.sleep(0.005)  # a rank that waits announces nothing but by its record
    return found


def folder() -> Path:
    found = current().run_folder
    assert found is not None
    return Path(found)


def waits_of(rank: int) -> tuple[WorkWaitEntry, ...]:
    with RecordFile(folder() / record_name(rank)) as record:
        return record.state().work_waits


def line_of(wait: WorkWaitEntry) -> str:
    site = wait.site
    assert site is not None
    return f"{os.path.basename(site.file)}:{site.function}"


def wait_at_the_end_of_a_block() -> str:
    dist.init_process_group(timeout=timedelta(seconds=60))
    x = np.ones(4)
    seen = ""
    if dist.get_rank() == 0:
        with dist._coalescing_manager():
            dist.all_reduce(x)
    else:
        waits = poll_for(lambda: waits_of(0), 20.0, "rank 0 waits for nothing")
        seen = line_of(waits[0])
        with dist._coalescing_manager():
            dist.all_reduce(x)
    dist.destroy_process_group()
    return seen


def test_the_end_of_a_block_is_a_line_of_the_program(ranks: Callable[..., list[Any]]) -> None:
    _, seen = ranks(wait_at_the_end_of_a_block, 2)
    assert seen == "test_work_waits.py:wait_at_the_end_of_a_block"


def see_each_wait(kind: str) -> list[Any]:
    dist.init_process_group(timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    x = np.ones(4)
    seen: list[Any] = []
    if rank == 0:
        work: Any
        if kind == "collective":
            work = dist.all_reduce(x, async_op=True)
        elif kind == "message":
            work = dist.irecv(x, src=1)
        elif kind == "future":
            work = dist.all_reduce(x, async_op=True)
            work = work.get_future().then(lambda future: future.value())
        elif kind == "block":
            with dist._coalescing_manager(async_ops=True) as work:
                dist.all_reduce(x)
                dist.all_reduce(x)
        wait_here(work)
        seen = [len(waits_of(0))]
        wait_here(work)
    else:
        waits = poll_for(lambda: waits_of(0), 20.0, "rank 0 waits for nothing")
        words = where_is(folder(), 0)
        with RecordFile(folder() / record_name(0)) as record:
            op = record.event(waits[0].number)
        seen = [len(waits), line_of(waits[0]), type(op).__name__, words]
        seen.append(waits[0].thread == os_pid_of(0))
        if kind == "message":
            dist.send(x, dst=0)
        elif kind == "block":
            with dist._coalescing_manager():
                dist.all_reduce(x)
                dist.all_reduce(x)
        else:
            dist.all_reduce(x)
    dist.destroy_process_group()
    return seen


def wait_here(work: Any) -> None:
    work.wait()


def os_pid_of(rank: int) -> int:
    with RecordFile(folder() / record_name(rank)) as record:
        return record.header.pid


@pytest.mark.parametrize("kind", ["collective", "message", "future", "block"])
def test_a_wait_is_seen_as_long_as_it_lasts(kind: str, ranks: Callable[..., list[Any]]) -> None:
    own, seen = ranks(see_each_wait, 2, kind=kind)
    assert own == [0]
    count, line, event, words, is_main = seen
    assert (count, line, event, is_main) == (1, "test_work_waits.py:wait_here", "OpEntry", True)
    assert words.startswith("in recv #1" if kind == "message" else "in all_reduce #1")
    assert ", waited for at test_work_waits.py:" in words


def leave_waits_in_odd_ways() -> list[int]:
    dist.init_process_group(timeout=timedelta(seconds=60))
    x = np.ones(4)
    if dist.get_rank() == 1:
        dist.recv(x, src=0)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return []
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    with pytest.raises(OpTimeout):
        work.wait(timedelta(seconds=0.01))
    counts = [len(waits_of(0))]
    # A signal whose handler raises ends the wait.
    signal.signal(signal.SIGUSR2, lambda *_: (_ for _ in ()).throw(KeyError("enough")))
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2))
    timer.start()
    with suppress(KeyError, DistError):
        work.wait(timedelta(seconds=30))
    timer.join()
    counts.append(len(waits_of(0)))
    # More threads than there are places; the ones without are counted.
    threads = [threading.Thread(target=work.wait) for _ in range(40)]
    for thread in threads:
        thread.start()

    def is_full() -> bool:
        with RecordFile(folder() / record_name(0)) as record:
            state = record.state()
        return len(state.work_waits) == 32 and state.lost_waits == 8

    poll_for(is_full, 20.0, "not all places are taken")
    dist.send(x, dst=1)
    for thread in threads:
        thread.join()
    counts.append(len(waits_of(0)))
    dist.destroy_process_group()
    return counts


def test_no_way_out_leaves_a_wait_behind(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(leave_waits_in_odd_ways, 2)[0] == [0, 0, 0]


def watch_a_future_that_nobody_waits_for() -> int:
    dist.init_process_group(timeout=timedelta(seconds=60))
    x = np.ones(4)
    if dist.get_rank() == 1:
        dist.recv(x, src=0)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return 0
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.get_future()
    most = max(len(waits_of(0)) for _ in range(500))
    dist.send(x, dst=1)
    work.wait()
    dist.destroy_process_group()
    return most


def test_looking_after_a_future_is_no_wait(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(watch_a_future_that_nobody_waits_for, 2) == [0, 0]


def die_in_a_wait() -> None:
    dist.init_process_group(timeout=timedelta(seconds=60))
    x = np.ones(4)
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        assert work is not None
        wait_here(work)
    poll_for(lambda: waits_of(0), 20.0, "rank 0 waits for nothing")
    os.kill(os_pid_of(0), signal.SIGKILL)
    os._exit(0)


def test_who_is_killed_in_a_wait_is_still_seen_in_it(
    ranks: Callable[..., list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path / "runs"))
    ranks(die_in_a_wait, 2, expect_exit={0: -signal.SIGKILL, 1: 0})
    (path,) = (tmp_path / "runs").rglob(record_name(0))
    record = read_record(path)
    (wait,) = record.state.work_waits
    assert line_of(wait) == "test_work_waits.py:wait_here"
    (op,) = (op for op in record.ops if op.number == wait.number)
    assert op.ended_ns is None
    assert op.is_async
