"""Latent errors as the rank itself tells them: ranks are threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.check.latent import CodeLine, is_result_dropped, line_above
from distdbg.check.sample import sample
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.pending import NO_DEADLINE
from distdbg.runtime.latent_errors.unwaited import is_only_read

WORLD = 2


def reported(program: Callable[[], Any], size: int = WORLD) -> list[str]:
    """The warnings of all ranks, in any order."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.run_threads(program, size, timeout_s=60)
    assert all(each.category is dist.LatentWarning for each in caught)
    return [str(each.message) for each in caught]


def of_rank(rank: int, texts: list[str]) -> list[str]:
    return [text for text in texts if text.startswith(f"rank {rank}: ")]


def test_work_that_is_dropped_is_told_once_per_line() -> None:
    def program() -> None:
        for _ in range(4):
            dist.all_reduce(np.ones(1), async_op=True)

    texts = reported(program)

    assert [len(of_rank(rank, texts)) for rank in range(WORLD)] == [1, 1]
    first = of_rank(0, texts)[0]
    assert "the Work of all_reduce on group 'world' was dropped, and nobody waited for it" in first
    assert "rank 0 started it at test_latent.py:" in first
    assert "rank 0 dropped its Work at test_latent.py:" in first
    assert first.endswith("hint: keep the Work and call wait() on it")


def test_work_that_is_kept_to_the_end_is_told_at_the_end() -> None:
    kept = []

    def program() -> None:
        kept.append(dist.barrier(async_op=True))

    texts = reported(program)

    assert len(texts) == WORLD
    assert all("nobody waited for barrier on group 'world'" in text for text in texts)


@pytest.mark.parametrize(
    "wait",
    [
        lambda work: work.wait(),
        lambda work: work.synchronize(),
        lambda work: work.block_current_stream(),
        lambda work: work.get_future().wait(),
        lambda work: work.get_future().then(lambda future: future.value()).wait(),
        lambda work: work.get_future_result().wait(),
        lambda work: [None for _ in iter(work.is_completed, True)],
        lambda work: [None for _ in iter(work.is_success, True)],
    ],
    ids=["wait", "synchronize", "stream", "future", "then", "result", "completed", "success"],
)
def test_what_counts_as_waiting(wait: Callable[[Any], Any]) -> None:
    assert reported(lambda: wait(dist.all_reduce(np.ones(1), async_op=True))) == []


def test_a_later_barrier_does_not_count_as_waiting() -> None:
    def program() -> None:
        work = dist.all_reduce(np.ones(1), async_op=True)
        dist.barrier()
        del work

    assert len(reported(program)) == WORLD


def test_coalesced_ops_are_one_handle() -> None:
    def program(waits: bool) -> None:
        work = dist.all_reduce_coalesced([np.ones(1), np.ones(2)], async_op=True)
        assert work is not None
        if waits:
            work.wait()

    assert reported(lambda: program(True)) == []
    assert len(reported(lambda: program(False))) == WORLD


def test_a_rank_that_fails_is_not_told_what_it_left_behind() -> None:
    kept = []

    def program() -> None:
        kept.append(dist.all_reduce(np.ones(1), async_op=True))
        raise ValueError("no data")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="no data"):
            dist.run_threads(program, WORLD, timeout_s=60)
    assert caught == []


def exchange(size: int) -> None:
    peer = 1 - dist.get_rank()
    ops = [
        dist.P2POp(dist.isend, np.ones(2), peer),
        dist.P2POp(dist.irecv, np.zeros(size), peer),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def test_what_a_loop_drops_whose_wait_raises_is_no_leak() -> None:
    def program() -> None:
        with pytest.raises(dist.MismatchError):
            exchange(2 + dist.get_rank())
        dist.barrier()

    assert reported(program) == []


def test_what_is_dropped_after_such_an_error_is_told() -> None:
    def program() -> None:
        with pytest.raises(dist.MismatchError):
            exchange(2 + dist.get_rank())
        dist.all_reduce(np.ones(1), async_op=True)
        dist.barrier()

    texts = reported(program)
    assert len(texts) == WORLD
    assert [text for text in texts if "all_reduce on group" not in text] == []


def test_nothing_is_told_below_detail() -> None:
    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.INFO)
        dist.all_reduce(np.ones(1), async_op=True)
        dist.barrier()

    assert reported(program) == []


def make_groups(count: int, keeps: bool, destroys: bool = False) -> None:
    kept = []
    for _ in range(count):
        group = dist.new_group()
        dist.barrier(group=group)
        if keeps:
            kept.append(group)
        if destroys:
            dist.destroy_process_group(group)


def test_a_group_that_is_made_in_a_loop_and_lost_is_told() -> None:
    texts = reported(lambda: make_groups(4, keeps=False))

    assert len(texts) == WORLD
    assert "groups of the same ranks are made by one line, and never destroyed" in texts[0]
    assert "made them at test_latent.py:" in texts[0]


@pytest.mark.parametrize("how", [{"keeps": True}, {"keeps": False, "destroys": True}])
def test_groups_that_are_kept_or_destroyed_are_not_told(how: dict[str, bool]) -> None:
    assert reported(lambda: make_groups(6, **how)) == []


def test_groups_of_other_ranks_are_not_told() -> None:
    def program() -> None:
        for rank in range(3):
            dist.new_group([rank])

    assert reported(program, 3) == []


def test_an_array_in_two_receives_is_told_and_in_two_sends_is_not() -> None:
    def program() -> None:
        array = np.ones(4)
        start = dist.isend if dist.get_rank() == 0 else dist.irecv
        works = [start(array, 1 - dist.get_rank(), tag=tag) for tag in (1, 2)]
        for work in works:
            assert work is not None
            work.wait()

    (text,) = reported(program)
    assert text.startswith("rank 1: recv on group 'world' shares memory with recv on group 'world'")


def test_the_collectives_of_one_group_may_share_an_array() -> None:
    def program() -> None:
        array = np.ones(4)
        works = [dist.all_reduce(array, async_op=True) for _ in range(3)]
        for work in works:
            assert work is not None
            work.wait()
        assert array.tolist() == [8.0] * 4

    assert reported(program) == []


def test_an_input_that_changes_before_the_wait_is_told() -> None:
    def program() -> None:
        array, back = np.ones(4), np.ones(4)
        peer = 1 - dist.get_rank()
        sent, received = dist.isend(array, peer), dist.irecv(back, peer)
        assert sent is not None
        assert received is not None
        if dist.get_rank() == 0:
            array[2] = 7.0
        sent.wait()
        received.wait()

    (text,) = reported(program)
    assert "the input of send on group 'world' was changed between its start and the wait" in text
    assert "rank 0 waited for it at test_latent.py:" in text


@pytest.mark.parametrize("size", [1, 4000])
def test_a_result_that_is_written_to_before_the_wait_is_told(size: int) -> None:
    def program() -> None:
        array = np.ones(size)
        work = dist.all_reduce(array, async_op=True)
        assert work is not None
        work.pending.await_end(NO_DEADLINE)  # which tells the program nothing
        if dist.get_rank() == 0:
            array[-1] = 7.0
        work.wait()

    (text,) = reported(program)
    assert "an array of all_reduce on group 'world' was written to between its start" in text
    assert "the wait for it: the result was changed" in text
    assert "rank 0 waited for it at test_latent.py:" in text


def test_an_array_in_place_that_changes_before_its_op_starts_is_told() -> None:
    def program() -> None:
        array, ready = np.ones(4), np.ones(1)
        if dist.get_rank() == 1:
            dist.recv(ready, 0)
        works = [dist.barrier(async_op=True), dist.all_reduce(array, async_op=True)]
        if dist.get_rank() == 0:
            array += 1.0
            dist.send(ready, 1)
        for work in works:
            assert work is not None
            work.wait()

    (text,) = reported(program)
    assert "what was written may be part of the result" in text


def test_a_later_op_of_the_group_may_write_a_result() -> None:
    def program() -> None:
        array = np.ones(4)
        work = dist.all_reduce(array, async_op=True)
        assert work is not None
        dist.barrier()
        array += 1.0
        work.wait()

    assert reported(program) == []


def test_a_later_op_of_the_group_may_write_an_input() -> None:
    def program() -> None:
        array, out = np.ones(4), np.ones(4 * WORLD)
        work = dist.all_gather_into_tensor(out, array, async_op=True)
        assert work is not None
        dist.all_reduce(array)
        work.wait()

    assert reported(program) == []


def test_a_line_is_told_whether_it_drops_what_it_calls() -> None:
    places = []

    def note() -> int:
        places.append(here_of_caller())
        return 1

    def here_of_caller() -> CodeLine:
        place = line_above(3)
        assert place is not None
        return place

    note()
    kept = note()

    assert kept == 1
    assert [is_result_dropped(place) for place in places] == [True, False]


def test_an_op_in_place_or_into_a_part_of_its_input_does_not_only_read_it() -> None:
    x = np.zeros(8)
    for out, is_read in ((x, False), (x[:4], False), (x[4:].reshape(2, 2), False), (x + 1, True)):
        assert is_only_read(Call(Kind.REDUCE_SCATTER, (x,), (out,))) == is_read
    assert is_only_read(Call(Kind.SEND, (x,), ()))


def test_a_sample_sees_a_change_at_both_ends() -> None:
    array = np.zeros(20_000)
    before = sample(array)
    assert before is not None
    for at in (0, -1):
        array[at] = 1.0
        assert sample(array) != before
        array[at] = 0.0
    assert sample(array) == before


@pytest.mark.parametrize(
    "array",
    [np.zeros(0), np.zeros((4, 4)).T, np.zeros(1 << 20), [1.0]],
    ids=["empty", "transposed", "large", "list"],
)
def test_no_sample_of_what_is_large_empty_or_in_pieces(array: Any) -> None:
    assert sample(array) is None


def test_a_blocking_op_on_an_array_in_flight_is_told() -> None:
    def program() -> None:
        array, message = np.zeros(4), np.ones(4)
        if dist.get_rank() == 0:
            dist.send(message, 1)
        pending = dist.irecv(array, 0) if dist.get_rank() == 1 else None
        dist.all_reduce(array)
        if pending is not None:
            pending.wait()

    texts = reported(program)

    assert len(texts) == 1
    assert texts[0].startswith(
        "rank 1: all_reduce on group 'world' shares memory with recv on group 'world'"
    )
    assert "rank 1 started all_reduce at test_latent.py:" in texts[0]


def test_blocking_ops_beside_ops_in_flight_are_right() -> None:
    def program() -> None:
        rank, other = dist.get_rank(), 1 - dist.get_rank()
        both, whole = np.ones(4), np.zeros(8)
        # Two that only read, a chain of collectives on one group, the other half of an array.
        sent = dist.isend(both, other)
        dist.recv(whole[:4], other)
        dist.all_gather_into_tensor(whole, both)
        if rank == 0:
            dist.broadcast(both, 0)
        else:
            dist.broadcast(np.zeros(4), 0)
        sent.wait()
        summed = dist.all_reduce(both, async_op=True)
        dist.all_reduce(both)
        dist.all_gather_into_tensor(whole, both)
        summed.wait()
        first = dist.all_reduce(whole[:4], async_op=True)
        dist.all_reduce(whole[4:])
        first.wait()
        dist.all_reduce(whole)

    assert reported(program) == []


def test_an_array_of_a_list_that_changes_in_flight_is_told() -> None:
    def program(changes: bool) -> None:
        out = [np.zeros(4) for _ in range(WORLD)]
        given = [np.full(4, float(index)) for index in range(WORLD)]
        work = dist.all_to_all(out, given, async_op=True)
        if changes:
            given[1][:] = 7
        given[0] = np.full(4, 7.0)  # the list is the program's own
        work.wait()

    assert reported(lambda: program(False)) == []
    texts = reported(lambda: program(True))
    assert len(texts) == WORLD
    assert "the input of all_to_all on group 'world' was changed" in texts[0]


def test_a_warning_that_is_an_error_is_raised_and_holds_nobody() -> None:
    kept = []

    def program() -> None:
        kept.append(dist.all_reduce(np.ones(1), async_op=True))

    with warnings.catch_warnings():
        warnings.simplefilter("error", dist.LatentWarning)
        with pytest.raises(dist.LatentWarning, match="nobody waited for all_reduce"):
            dist.run_threads(program, WORLD, timeout_s=20)
