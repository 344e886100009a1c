"""Asynchronous collectives that native code begins alone."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.check.latent import LatentWarning
from distdbg.errors import MismatchError
from distdbg.ops.call import LikeCall
from distdbg.runtime.api import known_calls
from distdbg.runtime.backends import cpu
from tests.ranks.known_calls import SIZE, are_freed, finish, hits, run


def begin(x: Any, **more: Any) -> dist.Work:
    """A known op, that goes on."""
    before = hits()
    work = dist.all_reduce(x, async_op=True, **more)
    assert hits() == before + 1
    assert work is not None
    return work


def warm_up_async(x: Any, **more: Any) -> None:
    for _ in range(2):
        finish(dist.all_reduce(x, async_op=True, **more))


def test_a_known_op_goes_on_behind_others_and_has_its_arrays() -> None:
    def program(rank: int) -> list[Any]:
        arrays = [np.full(4, rank + turn, "f4") for turn in range(6)]
        warm_up_async(np.ones(4, "f4"))
        works = [begin(x) for x in arrays]
        dist.all_reduce(arrays[0])  # behind them
        for work, x in zip(works, arrays, strict=True):
            assert work.wait()
            [result] = work.result()
            assert result is x
        assert "all_reduce on group" in repr(works[0])
        return [x.tolist() for x in arrays[1:]]

    assert run(program) == [[[2.0 * turn + 1] * 4 for turn in range(1, 6)]] * SIZE


def test_the_array_of_a_known_op_lives_as_long_as_it() -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        work = begin(x)
        alive = weakref.ref(x)
        del x
        assert alive() is not None
        work.wait()
        del work
        assert alive() is None

    run(program, 1)


@pytest.mark.parametrize("known", [True, False])
def test_an_error_right_after_the_start_leaves_the_arrays_to_the_op(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal's handler that raises: the program has no Work, and native code writes to the array."""
    both = threading.Barrier(SIZE)
    monkeypatch.setenv("DISTDBG_KNOWN_CALLS", str(int(known)))

    def fail(*given: Any) -> None:
        raise MemoryError

    def begin_gather(x: Any) -> dist.Work | None:
        return dist.all_gather_into_tensor(x, np.ones(2, "f4"), async_op=True)

    def program(rank: int) -> None:
        x: Any = np.ones(4, "f4")
        for _ in range(2):
            finish(begin_gather(np.ones(4, "f4")))
        both.wait(60)
        alive = weakref.ref(x)
        if rank == 0:
            with monkeypatch.context() as patch:
                patch.setattr(known_calls if known else cpu, "CpuPending", fail)
                with pytest.raises(MemoryError):
                    begin_gather(x)
            x = None
            gc.collect()  # the frames of the error
            assert alive() is not None
        both.wait(60)
        if rank == 1:
            finish(begin_gather(x))
        dist.barrier()
        warm_up_async(np.ones(4, "f4"))  # arrays of ops that are over go
        assert rank == 1 or are_freed(alive)

    run(program)


def test_an_op_that_nobody_waits_for_ends_all_the_same() -> None:
    """Also right after many whose callers carried them out."""

    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        for _ in range(100):
            begin(x).wait()
        work = begin(x)
        until = time.monotonic() + 60
        while not work.is_completed() and time.monotonic() < until:
            time.sleep(0.001)  # asks whether it is over
        assert work.is_completed()

    run(program)


def test_ops_in_flight_are_compared_without_asking_what_their_calls_are_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is compared with all that share its array."""
    asked = []
    original = LikeCall.__getattr__

    def count(self: LikeCall, name: str) -> Any:
        asked.append(name)
        return original(self, name)

    monkeypatch.setattr(LikeCall, "__getattr__", count)

    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        for work in [begin(x) for _ in range(64)]:
            work.wait()

    run(program, 1)
    assert len(asked) < 4 * 64


def test_nobody_waits_for_a_known_op() -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        work: dist.Work | None = begin(x)
        assert work is not None
        with pytest.warns(LatentWarning, match="Work of all_reduce .* was dropped") as reported:
            del work
        assert reported[0].filename == __file__

    run(program, 1)


def test_an_array_of_a_known_op_is_in_another_one() -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        other = dist.new_group([0])
        warm_up_async(x)
        work = begin(x)
        with pytest.warns(LatentWarning, match="shares memory with all_reduce on group .world."):
            second = dist.all_reduce(x, group=other, async_op=True)
        finish(second)
        finish(work)

    run(program, 1)


@pytest.fixture
def busy_core() -> Iterator[None]:
    """This thread, and those it starts, share one core with a program that computes."""
    cores = os.sched_getaffinity(0)
    core = min(cores)
    os.sched_setaffinity(0, {core})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("busy_core")
def test_the_thread_of_ops_rests_again_after_it_was_woken() -> None:
    """Each wait right after its op is that of the caller alone, also where the thread is often quicker."""

    def switches(thread: str) -> int:
        lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        dist.all_reduce(x)
        before = {path.name for path in Path("/proc/self/task").iterdir()}
        warm_up_async(x)
        [thread] = {path.name for path in Path("/proc/self/task").iterdir()} - before
        for _ in range(4):
            for _ in range(8):  # it carries these out
                work = begin(x)
                time.sleep(0.005)  # as a program that computes meanwhile
                work.wait()
            count = 8000
            first, began = switches(thread), time.monotonic()
            for _ in range(count):
                begin(x).wait()
            # It looks twice in half a millisecond. A preempted caller has the next few ops wake it.
            looks = (time.monotonic() - began) / 0.0002
            assert switches(thread) - first < count / 10 + looks

    run(program, 1)


def test_threads_wait_for_one_known_op_at_once() -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        both = threading.Barrier(3)
        failures: list[BaseException] = []
        works: list[dist.Work] = []

        def wait() -> None:
            try:
                for _ in range(50):
                    both.wait(60)  # the op is there
                    assert works[-1].wait()
                    both.wait(60)
            except BaseException as error:
                failures.append(error)
                both.abort()

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            x[:] = 1
            works.append(begin(x))
            both.wait(60)
            assert works[-1].wait()
            assert x.tolist() == [SIZE] * 4
            both.wait(60)
        for thread in threads:
            thread.join(60)
        assert not failures

    run(program)


def test_a_known_op_that_is_waited_for_at_once_costs_three_frames() -> None:
    """Of Python: the function, the wait, and the end of the Work."""

    def program(rank: int) -> list[str]:
        x = np.ones(4, "f4")
        warm_up_async(x)
        names: list[str] = []

        def note(frame: Any, event: str, argument: object) -> None:
            if event == "call":
                names.append(frame.f_code.co_qualname)

        sys.setprofile(note)
        try:
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            work.wait()
            del work
        finally:
            sys.setprofile(None)
        return names

    assert run(program) == [["all_reduce", "Work.wait", "Work.__del__"]] * SIZE


def ask_for_all(work: dist.Work, x: Any) -> list[object]:
    """What a Work says of an op that has ended well."""
    future = work.get_future()
    return [
        work.is_completed(),
        work.is_success(),
        work.exception(),
        work.result()[0] is x,
        future.wait()[0] is x,
        work.wait(timedelta(seconds=60)),
        work.wait(),
        repr(work),
    ]


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_known_op_says_all_that_any_other_says(is_waited_for: bool) -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        answers = []
        for _ in range(4):
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            if is_waited_for:
                assert work.wait()
            else:
                until = time.monotonic() + 60
                while not work.is_completed() and time.monotonic() < until:
                    time.sleep(0.001)  # a program that polls is what this is about
            answers.append(ask_for_all(work, x))
        assert hits()
        assert all(each == answers[0] for each in answers)

    run(program)


def test_an_array_of_a_known_op_is_sent_meanwhile() -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        work = begin(x)
        if rank == 1:
            dist.recv(np.zeros(4, "f4"), 0)
        else:
            with pytest.warns(
                LatentWarning, match="shares memory with all_reduce on group .world."
            ):
                dist.send(x, 1)
        finish(work)

    run(program)


def test_a_wait_with_a_limit_gives_up_a_known_op_which_goes_on() -> None:
    late = threading.Event()

    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        if rank == 1:
            assert late.wait(60)
            begin(x).wait()
            return
        work = begin(x)
        for _ in range(2):
            with pytest.raises(dist.OpTimeout, match="all_reduce"):
                work.wait(timedelta(seconds=0.05))
        late.set()
        assert work.wait()
        assert x.tolist() == [SIZE**3] * 4

    run(program)


def test_a_known_op_that_differs_raises_at_its_wait_as_any() -> None:
    def program(rank: int) -> str:
        arrays = [np.ones(n, "f4") for n in (4, 8)]
        for x in arrays:
            warm_up_async(x)
        work = begin(arrays[rank])
        with pytest.raises(MismatchError) as caught:
            work.wait()
        assert work.exception() is caught.value
        with pytest.raises(MismatchError):
            work.wait()
        return str(caught.value)

    for text in run(program):
        assert "float32[4] on rank 0, float32[8] on rank 1" in text
        assert f"called all_reduce at {Path(__file__).name}" in text


def test_a_group_that_is_left_ends_its_known_op_first() -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        other = dist.new_group([0, 1])
        for _ in range(2):
            finish(dist.all_reduce(x, group=other, async_op=True))
        x[:] = 1
        work = dist.all_reduce(x, group=other, async_op=True)
        assert work is not None
        dist.destroy_process_group(other)
        assert x.tolist() == [SIZE] * 4
        assert work.wait()

    run(program)


def test_a_known_op_that_nobody_has_waited_for_is_told_when_its_rank_leaves() -> None:
    kept = []

    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        warm_up_async(x)
        kept.append(begin(x))

    with pytest.warns(
        LatentWarning, match="nobody waited for all_reduce on group 'world'"
    ) as found:
        run(program)
    assert {each.filename for each in found} == {__file__}


@pytest.mark.parametrize("known", [True, False])
def test_a_known_op_of_a_group_that_a_rank_has_left_fails_as_any(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_KNOWN_CALLS", str(int(known)))

    def program(rank: int) -> list[str]:
        x = np.ones(4, "f4")
        warm_up_async(x)
        dist.barrier()
        if rank == 1:
            return []
        texts = []
        for _ in range(2):
            with pytest.raises(dist.RankLeft) as caught:
                finish(dist.all_reduce(x, async_op=True))
            texts.append(str(caught.value).splitlines()[0])
        return texts

    cannot = "on group 'world' cannot complete: rank 1 left (returned)"
    assert run(program) == [[f"all_reduce #4 {cannot}", f"all_reduce #5 {cannot}"], []]


@pytest.mark.parametrize("root", [0, 1])
def test_an_array_that_changes_before_the_wait_is_found_alike(
    root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(rank: int) -> None:
        x = np.ones(4, "f4")
        for _ in range(2):
            finish(dist.broadcast(x, root, async_op=True))
        work: Any = dist.broadcast(x, root, async_op=True)
        while not (work.begun or work.pending).handle.done:
            time.sleep(0.001)  # polled: nothing else tells of it without a wait
        x[0] = 7
        work.wait()

    def warned(known: bool) -> list[str]:
        monkeypatch.setenv("DISTDBG_KNOWN_CALLS", str(int(known)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(program)
        return sorted(str(each.message) for each in caught)

    texts = warned(known=True)
    assert texts == warned(known=False)
    assert [text.splitlines()[0] for text in texts] == [
        f"rank {rank}: an array of broadcast on group 'world' was written to between its start and the "
        "wait for it: the result was changed"
        for rank in range(SIZE)
    ]
