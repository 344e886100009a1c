"""Messages beside collectives, in another order on each rank: over a stand-in for NCCL on streams."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

import distdbg as dist
from distdbg.errors import MismatchError, OpTimeout
from distdbg.runtime.backends.nccl import library
from tests.unit.nccl.stand_in import StandInArray, of_rank
from tests.unit.nccl.streaming import StreamingMachine

LIMIT_S = 60
LEVELS = ("OFF", "INFO", "DETAIL")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> StreamingMachine:
    machine = StreamingMachine()
    monkeypatch.setattr(library, "_library", machine.library())
    monkeypatch.setenv("DISTDBG_DEBUG", "detail")
    return machine


def end(*works: dist.Work | None) -> None:
    """Wait for all of them, then raise the first error."""
    errors = []
    for work in works:
        assert work is not None
        try:
            work.wait(timedelta(seconds=LIMIT_S))
        except dist.DistError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def of(array: StandInArray) -> list[float]:
    return [float(value) for value in array.host]


@pytest.mark.parametrize("level", LEVELS)
def test_a_message_and_a_collective_may_be_called_in_another_order_on_each_rank(
    machine: StreamingMachine, level: str
) -> None:
    def program() -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        for number in range(3):
            total, message = of_rank([me + 1]), of_rank([10 * me + number])
            if me == 0:
                first = dist.isend(message, 1, group=pg)
                second = dist.all_reduce(total, group=pg, async_op=True)
            else:
                first = dist.all_reduce(total, group=pg, async_op=True)
                second = dist.irecv(message, 0, group=pg)
            end(first, second)
            assert (of(total), of(message)) == ([3], [number])
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert sorted(machine.made) == [(2, 0), (2, 0), (2, 1), (2, 1)]
    assert sorted(machine.ended) == [("destroy", 2, 0)] * 2 + [("destroy", 2, 1)] * 2


@pytest.mark.parametrize("level", LEVELS)
def test_each_may_send_to_the_next_before_it_receives(
    machine: StreamingMachine, level: str
) -> None:
    def program() -> list[float]:
        dist.set_debug_level(dist.DebugLevel[level])
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        out, taken = of_rank([me]), of_rank([-1])
        sent = dist.isend(out, (me + 1) % 3, group=pg)
        end(dist.irecv(taken, (me - 1) % 3, group=pg), sent)
        return of(taken)

    assert dist.run_threads(program, 3, timeout_s=LIMIT_S) == [[2], [0], [1]]


def test_two_ranks_of_a_group_may_begin_with_a_message(machine: StreamingMachine) -> None:
    def program() -> list[float]:
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        x = of_rank([me])
        if me == 3:
            dist.send(x, 1, group=pg)
        elif me == 1:
            end(dist.irecv(x, 3, group=pg))
        dist.all_reduce(x, group=pg)
        end(dist.all_reduce(of_rank([0]), group=pg, async_op=True))
        return of(x)

    assert dist.run_threads(program, 4, timeout_s=LIMIT_S) == [[8.0]] * 4
    assert sorted(machine.made) == [(2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)]


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
def test_two_that_both_send_first_are_told_for_whom_they_wait(
    machine: StreamingMachine, level: str
) -> None:
    def program() -> list[int]:
        dist.set_debug_level(dist.DebugLevel[level])
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        limit_s = 0.2 if me == 0 else 30.0
        sent = dist.isend(of_rank([me]), 1 - me, group=pg, timeout=limit_s)
        taken = dist.irecv(of_rank([me]), 1 - me, group=pg, timeout=30.0)
        assert sent is not None
        with pytest.raises(dist.DistError, match="send on group") as reported:
            sent.wait(timedelta(seconds=30))
        assert taken is not None
        with pytest.raises(dist.DistError):
            taken.wait(timedelta(seconds=30))
        return reported.value.missing if isinstance(reported.value, OpTimeout) else []

    assert dist.run_threads(program, 2, timeout_s=LIMIT_S)[0] == [1]
    assert {how for how, _, _ in machine.ended} == {"abort"}


def begin_bound(store: dist.Store, level: str) -> int:
    me, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group("nccl", store=store, rank=me, world_size=size, device_id=me)
    dist.set_debug_level(dist.DebugLevel[level])
    return me


@pytest.mark.parametrize("level", LEVELS)
def test_with_a_device_one_side_may_be_alone_and_the_other_in_a_batch(
    machine: StreamingMachine, level: str
) -> None:
    store = dist.HashStore()

    def program() -> list[float]:
        me = begin_bound(store, level)
        x, total = of_rank([me]), of_rank([1])
        work = dist.all_reduce(total, async_op=True)
        if me == 0:
            end(dist.isend(x, 1))
        else:
            end(*dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 0)]))
        end(work)
        dist.destroy_process_group()
        return of(x) + of(total)

    assert dist.run_threads(program, 2, timeout_s=LIMIT_S) == [[0, 2]] * 2
    assert sorted(machine.made) == [(2, 0), (2, 1)]


@pytest.mark.parametrize("is_in_batch", [False, True])
def test_messages_that_share_a_communicator_keep_their_place_among_collectives(
    machine: StreamingMachine, is_in_batch: bool
) -> None:
    # At DETAIL a collective waits until all ranks have agreed, and what follows it on the communicator too.
    store = dist.HashStore()

    def program() -> list[float]:
        me = begin_bound(store, "DETAIL")
        x, total = of_rank([me]), of_rank([1])
        if me == 1:
            store.wait(["called"], timedelta(seconds=LIMIT_S))  # rank 0 has no agreement until then
        works = [dist.all_reduce(total, async_op=True)]
        if me == 1:
            assert machine.has_collective[1].wait(LIMIT_S)
        function = dist.isend if me == 0 else dist.irecv
        if is_in_batch:
            works += dist.batch_isend_irecv([dist.P2POp(function, x, 1 - me)])
        else:
            works.append(function(x, 1 - me))
        if me == 0:
            store.set("called", "")
        end(*works)
        dist.destroy_process_group()
        return of(x) + of(total)

    assert dist.run_threads(program, 2, timeout_s=LIMIT_S) == [[0, 2]] * 2


def test_another_order_on_one_communicator_is_told(
    machine: StreamingMachine,
) -> None:
    store = dist.HashStore()

    def program() -> str:
        me = begin_bound(store, "DETAIL")
        x, total = of_rank([me]), of_rank([1])
        if me == 0:
            works = [dist.isend(x, 1), dist.all_reduce(total, async_op=True)]
        else:
            works = [dist.all_reduce(total, async_op=True), dist.irecv(x, 0)]
        with pytest.raises(MismatchError) as reported:
            end(*works)
        dist.destroy_process_group()
        return str(reported.value)

    reported = dist.run_threads(program, 2, timeout_s=LIMIT_S)
    for text in reported:
        assert "rank 0 sends it after 0 collectives, rank 1 receives it after 1 collective" in text
    for rank, name in enumerate(("send", "recv")):
        assert re.search(rf"rank {rank} called {name} at \S*test_pairs.py:\d", reported[1]), (
            reported[1]
        )


def test_at_info_it_is_told_when_the_limit_is_over(machine: StreamingMachine) -> None:
    store = dist.HashStore()

    def program() -> str:
        me = begin_bound(store, "INFO")
        x, total = of_rank([me]), of_rank([1])
        if me == 0:
            works = [dist.isend(x, 1), dist.all_reduce(total, async_op=True)]
        else:
            works = [dist.all_reduce(total, async_op=True), dist.irecv(x, 0, timeout=0.1)]
        with pytest.raises(MismatchError) as reported:
            end(*works)
        dist.destroy_process_group()
        return str(reported.value)

    for text in dist.run_threads(program, 2, timeout_s=LIMIT_S):
        assert "rank 0 sends it after 0 collectives, rank 1 receives it after 1 collective" in text


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
@pytest.mark.parametrize("sends_in_batch", [False, True])
def test_one_side_alone_and_the_other_in_a_batch_is_told_without_a_device(
    machine: StreamingMachine, level: str, sends_in_batch: bool
) -> None:
    def program() -> str:
        dist.set_debug_level(dist.DebugLevel[level])
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        x, function = of_rank([me]), (dist.isend, dist.irecv)[me]
        with pytest.raises(MismatchError) as reported:  # noqa: PT012 - a batch raises at once
            if sends_in_batch == (me == 0):
                end(*dist.batch_isend_irecv([dist.P2POp(function, x, 1 - me, pg)]))
            else:
                end(function(x, 1 - me, group=pg))
        return str(reported.value)

    ways = ("in a batch", "alone") if sends_in_batch else ("alone", "in a batch")
    for text in dist.run_threads(program, 2, timeout_s=LIMIT_S):
        assert f"rank 0 sends it {ways[0]}, rank 1 receives it {ways[1]}" in text


def test_a_receive_of_another_size_is_told_while_the_device_waits(
    machine: StreamingMachine,
) -> None:
    def program() -> str:
        dist.set_debug_level(dist.DebugLevel.INFO)
        pg, me = dist.new_group(backend="nccl"), dist.get_rank()
        with pytest.raises(MismatchError) as reported:
            end((dist.isend, dist.irecv)[me](of_rank([me] * (me + 1)), 1 - me, group=pg))
        return str(reported.value)

    for text in dist.run_threads(program, 2, timeout_s=LIMIT_S):
        assert "rank 0 sent 1 float32, rank 1 expects 2 float32" in text
