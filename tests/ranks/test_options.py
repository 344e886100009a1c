"""The options of the check among ranks: wrong programs are told, right ones left alone.

Ranks are threads where the program needs no process of its own: their groups are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import BufferChangedError, DivergedError, NonFiniteError
from distdbg.ops.call import Call
from distdbg.runtime.backends import planner
from distdbg.runtime.backends.cpu import CpuEngine
from distdbg.runtime.backends.planner import Planner

Ranks = Callable[..., list[Any]]


def run(program: Callable[[int], Any], size: int = 2) -> list[Any]:
    return dist.run_threads(lambda: program(dist.get_rank()), size, timeout_s=120.0)


# ------------------------------------------------------------------------------- non-finite


def refuse_a_nan() -> list[Any]:
    dist.init_process_group()
    rank = dist.get_rank()
    x = np.ones(1000, np.float32)
    if rank == 1:
        x[17] = np.inf
    with pytest.raises(NonFiniteError) as caught:
        dist.all_reduce(x)
    assert x[0] == 1.0
    y = np.ones(4, np.float16)
    dist.all_reduce(y)
    return [caught.value.ranks, str(caught.value), y.tolist()]


def test_inf_in_one_input_is_an_error_on_all_ranks(ranks: Ranks) -> None:
    results = ranks(refuse_a_nan, 3, env={"DISTDBG_CHECK_NONFINITE": "1"})
    assert all(result == results[0] for result in results)
    odd, text, after = results[0]
    assert odd == [1]
    assert after == [3.0] * 4
    assert text.splitlines()[0] == (
        "all_reduce #1 on group 'world' was given NaN or Inf by rank 1: 1 of 1000 elements"
    )
    assert "the first, Inf, at index 17; called at test_options.py:" in text


def test_what_is_no_input_may_be_nan(checked: Callable[..., None]) -> None:
    checked(NONFINITE=1)

    def program(rank: int) -> None:
        nothing = np.full(4, np.nan)
        x = nothing.copy() if rank == 0 else np.ones(4)
        dist.broadcast(x, src=1)
        assert x.tolist() == [1.0] * 4
        gathered = [nothing.copy() for _ in range(2)]
        dist.all_gather(gathered, np.ones(4))
        out = nothing.copy()
        dist.reduce_scatter(out, [np.ones(4)] * 2)
        dist.all_to_all_single(nothing.copy(), np.ones(4))
        dist.scatter(out, [np.ones(4)] * 2 if rank == 0 else None, src=0)
        dist.recv(nothing, src=0) if rank == 1 else dist.send(np.ones(4), dst=1)
        objects: list[Any] = [None] * 2
        dist.all_gather_object(objects, float("nan"))
        dist.all_reduce(np.full(3, -1))

    run(program)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_bad_block_is_found_in_every_collective(
    checked: Callable[..., None], is_async: bool
) -> None:
    checked(NONFINITE=1)

    def program(rank: int) -> None:
        good = np.ones(4)
        bad = np.array([1, 1, np.nan, 1]) if rank == 1 else good

        def refused(*arguments: Any, op: Callable[..., Any], **more: Any) -> None:
            def call() -> None:
                work = op(*arguments, async_op=is_async, **more)
                if work is not None:
                    work.wait()

            with pytest.raises(NonFiniteError) as caught:
                call()
            assert caught.value.ranks == [1]

        refused(bad, op=dist.all_reduce)
        refused(bad, op=dist.broadcast, src=1)
        refused(bad, op=dist.reduce, dst=0)
        refused([np.zeros(4), np.zeros(4)], bad, op=dist.all_gather)
        refused(np.zeros(4), [good, bad], op=dist.reduce_scatter)
        refused(np.zeros(4), bad, op=dist.all_to_all_single)
        sent = [np.zeros(4), np.zeros(4)] if rank == 0 else None
        refused(bad, sent, op=dist.gather, dst=0)
        dist.barrier()
        assert good.tolist() == [1.0] * 4

    run(program)


def test_a_send_of_nan_is_refused_before_it_is_sent(checked: Callable[..., None]) -> None:
    checked(NONFINITE=1)

    def program(rank: int) -> None:
        x = np.ones(3)
        if rank == 0:
            bad = np.array([1.0, np.nan, 2.0])
            for send in (dist.send, dist.isend):
                with pytest.raises(NonFiniteError, match=r"rank 0: 1 of 3 elements") as caught:
                    send(bad, dst=1)
                assert caught.value.ranks == [0]
            dist.send(np.full(3, 7.0), dst=1)
        else:
            dist.recv(x, src=0)
            assert x.tolist() == [7.0] * 3

    run(program)


def test_options_are_of_level_detail(checked: Callable[..., None]) -> None:
    checked(NONFINITE=1)

    def program(rank: int) -> None:
        bad = np.full(3, np.nan)
        dist.set_debug_level(dist.DebugLevel.INFO)
        dist.all_reduce(bad)
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        with pytest.raises(NonFiniteError):
            dist.all_reduce(bad)

    run(program)


def test_a_subgroup_has_the_options_and_names_global_ranks(checked: Callable[..., None]) -> None:
    checked(NONFINITE=1)

    def program(rank: int) -> None:
        group = dist.new_group([1, 2])
        if rank == 0:
            return
        x = np.array([np.nan if rank == 2 else 1.0])
        with pytest.raises(NonFiniteError) as caught:
            dist.all_reduce(x, group=group)
        assert caught.value.ranks == [2]

    run(program, 3)


# --------------------------------------------------------------------------------- checksums


def equal_outputs(rank: int) -> list[float]:
    dist.barrier()
    x = np.ones(100)
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    dist.broadcast(x, src=1)
    dist.all_gather([np.zeros(100) for _ in range(3)], x)
    mine = np.full(3, rank)
    dist.reduce_scatter_tensor(np.zeros(1, np.int64), mine)
    return [float(x[0])]


def test_equal_outputs_are_left_alone(checked: Callable[..., None]) -> None:
    checked(every=1)
    assert run(equal_outputs, 3) == [[9.0]] * 3


@pytest.mark.parametrize("is_async", [False, True])
def test_outputs_that_differ_are_told_on_every_nth_op(
    checked: Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    checked(every=2)
    make = Planner.make

    def make_wrong(self: Planner, call: Any, *views: Any) -> Any:
        # Stands for a rank whose arithmetic is broken: it takes the largest and says that it adds.
        if self.rank == 2 and call.op is not None:
            call = Call(call.kind, call.inputs, call.outputs, dist.ReduceOp.MAX)
        return make(self, call, *views)

    monkeypatch.setattr(planner, "fingerprint", lambda facts: 1)
    monkeypatch.setattr(Planner, "make", make_wrong)

    def program(rank: int) -> list[Any]:
        reported = []
        for _ in range(4):
            x = np.ones(50, np.float32)
            try:
                work = dist.all_reduce(x, async_op=is_async)
                if work is not None:
                    work.wait()
                reported.append(None)
            except DivergedError as error:
                reported.append([error.ranks, "the outputs have been written" in str(error)])
        return reported

    assert run(program, 3) == [[None, [[2], True], None, [[2], True]]] * 3


# ------------------------------------------------------------------------------------ buffers


def wait_in_a_gate() -> None:
    """Return when rank 0's first op waits in its gate; the gate before was passed in join."""
    world = dist.group.WORLD
    assert world is not None
    engine = world.engine
    assert isinstance(engine, CpuEngine)
    deadline = time.monotonic() + 20.0
    while engine.group.facts()[0][1] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.001)  # polled: nothing tells of it


def in_flight(rank: int, x: np.ndarray[Any, Any]) -> dist.Work:
    """An all_reduce of x that cannot start before `start` has been called by rank 0."""
    works = [dist.all_reduce(np.ones(1), async_op=True), dist.all_reduce(x, async_op=True)]
    assert works[0] is not None
    assert works[1] is not None
    works[0].get_future()  # it ends before the other does, and nobody here waits for it
    return works[1]


def test_an_array_that_changes_before_its_op_starts_is_told_on_all_ranks(
    checked: Callable[..., None],
) -> None:
    checked(BUFFERS=1)

    def program(rank: int) -> None:
        x = np.ones(100)
        if rank == 0:
            dist.recv(
                np.zeros(1), src=1
            )  # so that rank 1 has changed its array before anything starts
        work = in_flight(rank, x)
        if rank == 1:
            x[5] = 3.0
            dist.send(np.zeros(1), dst=0)
        with pytest.raises(BufferChangedError) as caught:
            work.wait()
        assert caught.value.ranks == [1]
        assert "rank 1 started it at test_options.py:" in str(caught.value)
        assert "(in_flight)" in str(caught.value)
        assert x.tolist()[:5] == [1.0] * 5
        dist.all_reduce(x)

    run(program)


def test_an_input_that_changes_during_its_op_is_told_where_it_changed(
    checked: Callable[..., None],
) -> None:
    checked(BUFFERS=1)

    def program(rank: int) -> str:
        mine = np.full(1000, float(rank))
        gathered = np.zeros(2000)
        if rank == 0:
            work = dist.all_gather_into_tensor(gathered, mine, async_op=True)
            assert work is not None
            wait_in_a_gate()
            mine[7] = 99.0
            dist.send(np.zeros(1), dst=1)
            with pytest.raises(BufferChangedError) as caught:
                work.wait()
            assert caught.value.ranks == [0]
            return str(caught.value)
        dist.recv(np.zeros(1), src=0)
        dist.all_gather_into_tensor(gathered, mine)
        return ""

    assert "it was found after the op" in run(program)[0]


def test_what_one_rank_alone_notices_does_not_end_its_block(checked: Callable[..., None]) -> None:
    checked(BUFFERS=1)

    def program(rank: int) -> float:
        mine, gathered, x = np.ones(1000), np.zeros(2000), np.ones(4)
        if rank == 1:
            dist.recv(np.zeros(1), src=0)
        with dist._coalescing_manager(async_ops=True) as block:
            dist.all_gather_into_tensor(gathered, mine)
            dist.all_gather_into_tensor(gathered, mine)
        after = dist.all_reduce(x, async_op=True)
        assert after is not None
        if rank == 0:
            wait_in_a_gate()
            mine[7] = 99.0
            dist.send(np.zeros(1), dst=1)
            with pytest.raises(BufferChangedError):
                block.wait()
        else:
            block.wait()
        after.wait()
        return float(x[0])

    assert run(program) == [2.0, 2.0]


def test_a_message_that_changes_before_it_is_taken_is_told(checked: Callable[..., None]) -> None:
    checked(BUFFERS=1)

    def program(rank: int) -> None:
        x = np.ones(10)
        if rank == 1:
            dist.barrier()
            dist.recv(x, src=0)
            dist.recv(x, src=0)
            return
        works = [dist.isend(x, dst=1), dist.isend(np.ones(10), dst=1)]
        x[3] = 2.0
        dist.barrier()
        assert all(work is not None for work in works)
        with pytest.raises(BufferChangedError, match=r"isend|send on group") as caught:
            works[0].wait()
        assert caught.value.ranks == [0]
        assert "rank 0 started it at test_options.py:" in str(caught.value)
        works[1].wait()

    run(program)


def test_arrays_in_legal_use_are_left_alone(checked: Callable[..., None]) -> None:
    checked(BUFFERS=1)

    def program(rank: int) -> None:
        x = np.ones(1000)
        works = [dist.all_reduce(x, async_op=True) for _ in range(5)]
        works.append(dist.broadcast(x, src=0, async_op=True))
        gathered = np.zeros(2000)
        works.append(dist.all_gather_into_tensor(gathered, x, async_op=True))
        for work in works:
            assert work is not None
            work.wait()
        assert gathered.tolist() == [32.0] * 2000
        x[:] = 5
        work = dist.isend(x, dst=1) if rank == 0 else dist.irecv(x, src=0)
        assert work is not None
        work.wait(timedelta(seconds=20))

    run(program)
