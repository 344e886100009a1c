"""Calls that native code carries out alone: the same as the Python way, and only as long as that would be."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.config import read_setting
from distdbg.errors import MismatchError, OpTimeout, PeerLost
from distdbg.record.entries import OpEntry
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current
from tests.ranks.known_calls import SIZE, finish, hits, run, send_around, world

#: Each takes an array of 4, one of 4, and one of 2.
HOT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "all_reduce": lambda x, y, z: dist.all_reduce(x),
    "all_reduce of MAX": lambda x, y, z: dist.all_reduce(x, dist.ReduceOp.MAX),
    "broadcast": lambda x, y, z: dist.broadcast(x, 1),
    "broadcast by group_src": lambda x, y, z: dist.broadcast(x, group_src=0),
    "all_gather_into_tensor": lambda x, y, z: dist.all_gather_into_tensor(x, z),
    "all_gather_into_tensor in place": lambda x, y, z: dist.all_gather_into_tensor(
        x, x[2 * dist.get_rank() :][:2]
    ),
    "reduce_scatter_tensor": lambda x, y, z: dist.reduce_scatter_tensor(z, x),
    "all_to_all_single": lambda x, y, z: dist.all_to_all_single(y, x),
    "barrier": lambda x, y, z: dist.barrier(),
    "send and recv": lambda x, y, z: send_around(x, y),
    "with a tag": lambda x, y, z: send_around(x, y, tag=3),
    "on a group that is given": lambda x, y, z: dist.all_reduce(x, group=world()),
    "all_reduce that goes on": lambda x, y, z: finish(dist.all_reduce(x, async_op=True)),
    "broadcast that goes on": lambda x, y, z: finish(dist.broadcast(x, 1, async_op=True)),
    "all_gather_into_tensor that goes on": lambda x, y, z: finish(
        dist.all_gather_into_tensor(x, z, async_op=True)
    ),
    "reduce_scatter_tensor that goes on": lambda x, y, z: finish(
        dist.reduce_scatter_tensor(z, x, async_op=True)
    ),
    "all_to_all_single that goes on": lambda x, y, z: finish(
        dist.all_to_all_single(y, x, async_op=True)
    ),
    "barrier that goes on": lambda x, y, z: finish(dist.barrier(async_op=True)),
}


MESSAGES = ("send and recv", "with a tag")


def call_thrice(name: str, dtype: str = "f4") -> list[Any]:
    """What each of three calls left in the arrays, and how many were known."""
    seen: list[Any] = []
    for turn in range(3):
        rank = dist.get_rank()
        x, y, z = (np.arange(n, dtype=dtype) + 10 * rank + turn for n in (4, 4, 2))
        HOT[name](x, y, z)
        seen.append([x.tolist(), y.tolist(), z.tolist()])
    return [seen, hits()]


@pytest.mark.parametrize("name", HOT)
def test_a_known_call_does_what_it_did_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = run(lambda rank: call_thrice(name))
    # The group is looked at by the first call, and what comes second is learned.
    assert [count for _, count in known] == [3 if name in MESSAGES else 1] * SIZE
    monkeypatch.setenv("DISTDBG_KNOWN_CALLS", "0")
    assert read_setting("DISTDBG_KNOWN_CALLS") is False
    slow = run(lambda rank: call_in_python(name))
    assert [seen for seen, _ in known] == slow


def call_in_python(name: str) -> Any:
    seen = []
    for turn in range(3):
        x, y, z = (np.arange(n, dtype="f4") + 10 * dist.get_rank() + turn for n in (4, 4, 2))
        HOT[name](x, y, z)
        seen.append([x.tolist(), y.tolist(), z.tolist()])
    assert world().known_calls is False
    return seen


def reduce_shared_and_other_arrays() -> int:
    dist.init_process_group()
    rank = dist.get_rank()
    shared = dist.zeros(4, dtype=np.float32)
    for turn in range(6):
        # From the fourth on each rank has another sort of array than the one before.
        x = shared if turn < 3 or (turn + rank) % 2 else np.zeros(4, np.float32)
        x[:] = rank + turn
        dist.all_reduce(x)
        assert x.tolist() == [1 + SIZE * turn] * 4
    count = hits()
    dist.destroy_process_group()
    return count


def test_shared_and_other_arrays_are_known_alike(ranks: Callable[..., list[Any]]) -> None:
    assert min(ranks(reduce_shared_and_other_arrays, SIZE)) >= 4


# ------------------------------------------------------------------------------------ records


def record_all() -> list[Any]:
    dist.init_process_group()
    for name, call in HOT.items():
        for dtype in ("f4", "i8"):
            for _ in range(3):
                call(*(np.ones(n, dtype) for n in (4, 4, 2)))
        with dist.record_comm(name):
            call(*(np.ones(n, "f4") for n in (4, 4, 2)))
    folder = current().run_folder
    assert folder is not None
    count = hits()
    record = read_record(Path(folder) / f"rank{dist.get_rank():05}.ddr")
    ops = [event for event in record.events if isinstance(event, OpEntry)]
    facts = [
        [
            op.name,
            op.form and str(op.form),
            op.seq,
            op.peer,
            op.tag,
            op.is_async,
            op.level,
            op.fingerprint,
            op.comm,
            op.status,
            op.source,
            op.site and str(op.site),
            op.started_ns is not None,
        ]
        for op in ops
    ]
    dist.destroy_process_group()
    return [facts, count]


def test_both_ways_write_the_same_record(ranks: Callable[..., list[Any]]) -> None:
    known = ranks(record_all, SIZE)
    slow = ranks(record_all, SIZE, env={"DISTDBG_KNOWN_CALLS": "0"})
    assert min(count for _, count in known) > 4 * len(HOT)
    assert [count for _, count in slow] == [0] * SIZE
    for (facts, _), (expected, _) in zip(known, slow, strict=True):
        assert len(facts) > 7 * len(HOT)
        assert facts == expected


# ------------------------------------------------------------------------------------- errors


def test_blocking_calls_of_any_size_are_known_and_large_asynchronous_ones_are_not() -> None:
    def program(rank: int) -> list[int]:
        x, y = np.arange(1 << 18, dtype="f4"), np.zeros(1 << 18, "f4")  # 1 MiB
        for _ in range(3):
            send_around(x, y)  # the first call looks at the group, and each is learned
        before = hits()
        for _ in range(5):
            send_around(x, y)
        messages = hits() - before
        assert np.array_equal(x, y)
        for _ in range(5):
            dist.all_reduce(y)
        blocking = hits() - before - messages
        for _ in range(5):
            dist.all_reduce(y, async_op=True).wait()
        return [messages, blocking, hits() - before - messages - blocking]

    assert run(program) == [[10, 4, 0]] * SIZE


def raised_by(call: Callable[[], Any]) -> list[Any]:
    with pytest.raises(dist.DistError) as caught:
        call()
    error = caught.value
    return [type(error).__name__, str(error), error.__cause__, error.__suppress_context__]


def differ_when_known(rank: int) -> list[Any]:
    """Ranks that differ at a call which both know."""
    errors = []
    for _ in range(4):
        dist.all_reduce(np.ones(2))
        dist.all_reduce(np.ones(3))
        dist.broadcast(np.ones(2), 0)
        dist.broadcast(np.ones(2), 1)
        send_around(np.ones(2), np.ones(2))
        send_around(np.ones(3), np.ones(3))
    errors.append(raised_by(lambda: dist.all_reduce(np.ones(2 + rank))))
    errors.append(raised_by(lambda: dist.broadcast(np.ones(2), rank)))
    work = dist.all_reduce(np.ones(2 + rank), async_op=True)
    assert work is not None
    errors.append(raised_by(work.wait))
    errors.append(
        raised_by(lambda: dist.send(np.ones(2), 1) if rank == 0 else dist.recv(np.ones(3), 0))
    )
    x = np.ones(2)
    dist.all_reduce(x)  # the group is still usable
    return [errors, x.tolist()]


def test_ranks_that_differ_are_told_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    known = run(differ_when_known)
    monkeypatch.setenv("DISTDBG_KNOWN_CALLS", "0")
    slow = run(differ_when_known)
    assert known == slow
    assert {error[0] for errors, _ in known for error in errors} == {MismatchError.__name__}


@pytest.mark.parametrize("name", ["all_reduce", "barrier", "recv"])
def test_a_known_call_has_the_limit_of_its_group(name: str) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "all_reduce": dist.all_reduce,
        "barrier": lambda x: dist.barrier(),
        "recv": lambda x: dist.recv(x, 1),
    }
    both_are_done = threading.Barrier(SIZE)

    def program(rank: int) -> None:
        for _ in range(3):
            if name == "recv":
                dist.recv(np.ones(2), 1) if rank == 0 else dist.send(np.ones(2), 0)
            else:
                calls[name](np.ones(2))
        before = hits()
        world().set_timeout(timedelta(seconds=0.2))
        if rank == 0:
            with pytest.raises(OpTimeout) as caught:
                calls[name](np.ones(2))  # looks at the group again
            assert caught.value.missing == [1]
        assert hits() == before
        both_are_done.wait()

    run(program)


def test_a_known_call_that_times_out_says_who_is_missing() -> None:
    both_are_done = threading.Barrier(SIZE)

    def program(rank: int) -> None:
        engine: Any = None
        for _ in range(3):
            dist.barrier()
            engine = world().known_engine
        engine.set_timeout(0.2)  # of the engine alone: the group stays as it was looked at
        if rank == 0:
            before = hits()
            with pytest.raises(OpTimeout) as caught:
                dist.barrier()
            assert caught.value.missing == [1]
            assert "barrier #4 on group 'world'" in str(caught.value)
            assert hits() == before  # counted are those that went well
        both_are_done.wait()

    run(program)


def test_what_was_handled_stays_the_context_of_its_error() -> None:
    def program(rank: int) -> None:
        for count in (2, 3):
            for _ in range(3):
                dist.all_reduce(np.ones(count))

        def fail_while_failing() -> None:
            try:
                raise ValueError("no number")
            finally:
                dist.all_reduce(np.ones(2 + rank))

        with pytest.raises(MismatchError) as caught:
            fail_while_failing()
        assert isinstance(caught.value.__context__, ValueError)

    run(program)


def interrupt_a_known_call() -> str:
    dist.init_process_group(timeout=timedelta(seconds=60))
    # Made before: it is None only without init_process_group.
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    for _ in range(4):
        dist.barrier()
    before = hits()
    assert before > 0
    if dist.get_rank() == 1:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            dist.barrier()
        store.set("interrupted", "")
        return ""
    store.wait(["interrupted"])
    with pytest.raises(dist.DistError) as caught:
        dist.barrier()
    return str(caught.value)


def test_a_known_call_can_be_interrupted(ranks: Callable[..., list[Any]]) -> None:
    assert "rank 1 was interrupted" in ranks(interrupt_a_known_call, SIZE)[0]


def lose_a_peer_in_a_known_call() -> list[Any]:
    dist.init_process_group(timeout=timedelta(seconds=60))
    x = np.ones(2)
    for _ in range(4):
        dist.all_reduce(x)
    assert hits() > 0
    if dist.get_rank() == 1:
        os._exit(3)
    with pytest.raises(PeerLost) as caught:
        dist.all_reduce(x)
    return [caught.value.peer, "all_reduce #5 on group 'world'" in str(caught.value)]


def test_a_known_call_says_which_peer_died(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(lose_a_peer_in_a_known_call, SIZE, expect_exit={1: 3})[0] == [1, True]


@pytest.mark.parametrize(
    "name",
    [
        "all_reduce",
        "broadcast",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
        "all_to_all_single",
        "barrier",
        "send",
        "recv",
    ],
)
def test_the_functions_are_functions(name: str) -> None:
    function = getattr(dist, name)
    assert inspect.isfunction(function)
    assert inspect.getdoc(function)
    assert {"group", "timeout"} <= set(inspect.signature(function).parameters)
