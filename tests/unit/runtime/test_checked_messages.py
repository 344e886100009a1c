"""Point to point ops of a backend that is not ours: what is compared, and what is left as it is."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError, MismatchError, OpTimeout, RankLeft
from distdbg.native import Message
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.checked.checked_engine import OFF, CheckedEngine
from distdbg.runtime.backends.checked.messages import Messages
from tests.support import in_memory
from tests.support.store_ranks import run_store_ranks


@pytest.fixture(autouse=True)
def backends() -> Iterator[None]:
    with in_memory.registered():
        yield


def run(
    function: Callable[[int], Any], size: int, backend: str = "together", **options: Any
) -> list[Any]:
    return run_store_ranks(function, size, backend=backend, **options)


def caught(function: Callable[[], object]) -> DistError:
    with pytest.raises(DistError) as info:
        function()
    return info.value


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_any", [False, True])
@pytest.mark.parametrize("what", ["dtype", "size"])
def test_a_pair_that_differs_is_told_to_both_sides(what: str, is_any: bool, is_async: bool) -> None:
    def rank_main(rank: int) -> str:
        if rank == 0:
            # Reported in the send where that takes so long, else at the next op.
            error = caught(lambda: (dist.send(np.ones(4, np.float32), 1), dist.barrier()))
        else:
            x = np.zeros(4, np.int32) if what == "dtype" else np.zeros(3, np.float32)

            def recv() -> None:
                if is_async:
                    work = dist.irecv(x, None if is_any else 0)
                    assert work is not None
                    work.wait()
                else:
                    dist.recv(x, None if is_any else 0)

            error = caught(recv)
            if not (is_any or is_async):
                assert not x.any()  # not a byte was written
            assert "test_checked_messages.py:" in str(error)
        assert isinstance(error, MismatchError)
        return error.what

    first, second = run(rank_main, 2)
    assert first == second
    wanted = "4 int32" if what == "dtype" else "3 float32"
    assert f"rank 0 sent 4 float32, rank 1 expects {wanted} (tag 0)" in first


def test_a_sender_that_notices_later_has_the_same_error() -> None:
    is_sent = threading.Event()

    def rank_main(rank: int) -> str:
        if rank:
            assert is_sent.wait(20)
            return caught(lambda: dist.recv(np.zeros(3, np.float32))).what
        dist.send(np.ones(4, np.float32), 1)
        is_sent.set()
        engine: Any = dist.group.WORLD.engine
        while not hasattr(engine, "_cause"):
            engine = engine.inner
        while (reported := engine.control.reported_mismatch()) is None:
            time.sleep(0.001)  # until rank 1 has broken the group
        engine.on_trouble(reported)  # as by the watch of a send that ends well at that moment
        error = caught(dist.barrier)
        assert isinstance(error, MismatchError)
        later = caught(dist.barrier)
        assert not isinstance(later, MismatchError)
        assert later.what == f"barrier on group 'world' cannot run: {error.what}"
        return error.what

    first, second = run(rank_main, 2)
    assert first == second


def test_a_send_to_a_rank_that_has_left_the_group_does_not_wait_for_its_limit() -> None:
    has_left = threading.Event()

    def rank_main(rank: int) -> list[int]:
        if rank:
            dist.destroy_process_group()
            has_left.set()
            return []
        assert has_left.wait(20)
        engine: Any = dist.group.WORLD.engine
        while not hasattr(engine, "_cause"):
            engine = engine.inner
        call = Call(Kind.SEND, (np.ones(1),), (), peer=1)
        now_ns = engine.control.clock.now_ns()
        engine.control.look(call, 0, now_ns)  # what it had received may be on its way
        error = caught(lambda: engine.control.look(call, 0, now_ns, grace_ns=0))
        assert isinstance(error, RankLeft)
        assert "send on group 'world' cannot complete: rank 1 left" in error.what
        return error.ranks

    assert run(rank_main, 2)[0] == [1]


def test_a_header_comes_also_for_a_receive_that_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Message] = []
    expect = Messages.expect

    def remember(self: Messages, *args: Any) -> Message:
        header = expect(self, *args)
        found.append(header)
        return header

    monkeypatch.setattr(Messages, "expect", remember)

    def rank_main(rank: int) -> None:
        control = control_of(dist.group.WORLD.engine)
        if rank == 1:
            pending = dist.group.WORLD.engine.submit(
                Call(Kind.RECV, (), (np.zeros(4, np.float32),), peer=0)
            )
            del pending
            gc.collect()
            assert found[0].note == b""  # it has not come
        dist.barrier()
        if rank == 0:
            work = dist.isend(np.ones(4, np.float32), 1)
            assert work is not None
            work.wait()
        while rank == 1 and not control.has_come(found[0]):
            time.sleep(0.001)  # nothing but another look tells
        dist.barrier()

    run(rank_main, 2)
    words = json.loads(found[0].note)
    assert (words["function"], words["dtype"], words["count"]) == ("send", "float32", 4)


def control_of(engine: Any) -> Any:
    while not hasattr(engine, "control"):
        engine = engine.inner
    return engine.control


def test_a_rank_knows_when_all_of_its_headers_were_received() -> None:
    def rank_main(rank: int) -> list[bool]:
        control = control_of(dist.group.WORLD.engine)
        call = Call(Kind.SEND, (np.ones(4, np.float32),), (), peer=1)
        seen = [control.are_sends_received()]
        if rank == 0:
            control.post(call, b"words", 16, 1, 3)
            seen.append(control.are_sends_received())
        dist.barrier()
        if rank == 1:
            header = control.post(call, None, 16, 0, 3)
            control.await_header(call, header, 2**62, False)
            assert header.note == b"words"
        dist.barrier()
        return [*seen, control.are_sends_received()]

    assert run(rank_main, 2) == [[True, False, True], [True, True]]


def test_a_header_that_is_longer_than_both_sides_know_is_refused() -> None:
    def rank_main(rank: int) -> str:
        control = control_of(dist.group.WORLD.engine)
        call = Call(Kind.SEND, (np.ones(4, np.float32),), (), peer=1 - rank)
        return caught(lambda: control.post(call, b"12345", 4, 1 - rank, 0)).what

    for text in run(rank_main, 2):
        assert "a note is longer than both sides know" in text


def test_sends_before_receives_and_tags_in_any_order_are_legal() -> None:
    def rank_main(rank: int) -> None:
        peer = 1 - rank
        x = np.zeros(2)
        dist.send(np.full(2, 1.0), peer)
        dist.send(np.full(3, 2.0), peer, tag=2)
        dist.send(np.full(4, 3.0), peer, tag=1)
        assert dist.recv(x, peer) == peer
        y, z = np.zeros(4), np.zeros(3)
        dist.recv(y, peer, tag=1)
        dist.recv(z, peer, tag=2)
        assert (x[0], y[0], z[0]) == (1, 3, 2)

    run(rank_main, 2)


def test_receives_may_be_waited_for_in_any_order() -> None:
    def rank_main(rank: int) -> None:
        if rank == 0:
            for size in (1, 2, 3):
                dist.send(np.full(size, float(size)), 1)
            dist.barrier()
        else:
            arrays = [np.zeros(size) for size in (1, 2, 3)]
            works = [dist.irecv(x, 0) for x in arrays]
            for work in reversed(works):
                assert work is not None
                work.wait()
            assert [x[0] for x in arrays] == [1, 2, 3]
            dist.barrier()

    run(rank_main, 2)


def test_receives_from_any_source_beside_others_are_not_compared_and_go_on_counting() -> None:
    def rank_main(rank: int) -> None:
        if rank:
            dist.send(np.full(rank, float(rank)), 0)  # as many elements as the rank says
            dist.send(np.full(rank, float(rank)), 0)
            dist.barrier()
            dist.send(np.full(5, 5.0), 0)
        else:
            arrays = [np.zeros(2) for _ in range(4)]
            works = [dist.irecv(x) for x in arrays]
            for work in works:
                assert work is not None
                work.wait()
            assert sorted(work.source_rank() for work in works if work) == [1, 1, 2, 2]
            dist.barrier()
            for source in (1, 2):  # the count of headers is right after all
                x = np.zeros(5)
                assert dist.recv(x, source) == source
                assert x[0] == 5

    run(rank_main, 3)


def test_a_batch_in_a_ring_is_legal() -> None:
    def rank_main(rank: int) -> None:
        n = dist.get_world_size()
        x, y = np.full(2, float(rank)), np.zeros(2)
        for _ in range(3):
            ops = [
                dist.P2POp(dist.isend, x, (rank + 1) % n),
                dist.P2POp(dist.irecv, y, (rank - 1) % n),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            assert y[0] == (rank - 1) % n

    run(rank_main, 3)


def test_messages_before_a_barrier_leave_the_count_of_ops_alone() -> None:
    def rank_main(rank: int) -> None:
        x = np.ones(1)
        if rank == 0:
            dist.send(x, 1)
        if rank == 1:
            dist.recv(x, 0)
        dist.barrier()

    run(rank_main, 3)


def test_ranks_at_different_levels_keep_step() -> None:
    def rank_main(rank: int) -> None:
        engine = dist.group.WORLD.engine.inner  # type: ignore[union-attr] # under the record
        assert isinstance(engine, CheckedEngine)
        for step in range(6):
            engine.set_level(OFF if (step + rank) % 2 else 2)
            x = np.ones(step + 1)
            if rank == 0:
                dist.send(x, 1)
            else:
                dist.recv(x, 0)

    run(rank_main, 2)


def test_a_sender_that_never_comes_is_named() -> None:
    is_over = threading.Event()

    def rank_main(rank: int) -> None:
        if rank == 0:
            is_over.wait(120)
            return
        error = caught(lambda: dist.recv(np.zeros(1), 0, tag=7, timeout=1.0))
        is_over.set()
        assert isinstance(error, OpTimeout)
        assert error.missing == [0]
        assert "tag 7" in str(error)

    run(rank_main, 2)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_sender_that_left_is_told_at_once(is_async: bool) -> None:
    def rank_main(rank: int) -> None:
        if rank == 0:
            return

        def recv() -> None:
            work = dist.irecv(np.zeros(1), 0) if is_async else dist.recv(np.zeros(1), 0)
            if not isinstance(work, int):
                assert work is not None
                work.wait()

        error = caught(recv)
        assert isinstance(error, RankLeft)  # which a wait until the limit would not bring
        assert "recv on group 'world' cannot complete: rank 0 left (" in error.what

    run(rank_main, 2)


def test_a_wait_with_a_limit_of_its_own_knows_at_its_end_that_the_sender_left() -> None:
    has_left = threading.Event()

    def rank_main(rank: int) -> None:
        if rank == 0:
            dist.destroy_process_group()
            has_left.set()
            return
        work = dist.irecv(np.zeros(1), 0)
        assert work is not None
        assert has_left.wait(20)
        for _ in range(2):
            error = caught(lambda: work.wait(timedelta(seconds=0.2)))
            assert isinstance(error, RankLeft)

    run(rank_main, 2)


def test_where_tags_are_ignored_they_are_compared() -> None:
    def rank_main(rank: int) -> None:
        if rank == 0:
            # Reported in the send where that takes so long, else at the next op.
            reported = caught(lambda: (dist.send(np.ones(1), 1, tag=1), dist.barrier()))
            assert isinstance(reported, MismatchError)
        else:
            error = caught(lambda: dist.recv(np.ones(1), 0, tag=2))
            assert "with tag 1" in error.what
            assert "with tag 2" in error.what

    run(rank_main, 2, "tagless")


def test_names_in_any_script_fit_into_a_header() -> None:
    # A function of 300 characters, each of them four bytes long.
    name = "\U00020000" * 300
    scope: dict[str, Any] = {"dist": dist, "np": np}
    exec(
        f"def {name}(rank):\n    dist.send(np.ones(1), 1) if rank == 0 else dist.recv(np.ones(1))",
        scope,
    )
    run(scope[name], 2)
