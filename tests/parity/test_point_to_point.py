"""send and recv, their asynchronous forms, and batches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise


def wait(work: dist.Work | None) -> None:
    """Of an op that was started on this rank."""
    assert work is not None
    work.wait()


@promise("`send` and `recv` bring an array from one rank to another; `recv` returns the sender")
def test_send_and_recv() -> None:
    def run(rank: int) -> Any:
        x = np.full(3, 7.0) if rank == 0 else np.zeros(3)
        if rank == 0:
            dist.send(x, dst=1)
        else:
            assert dist.recv(x, src=0) == 0
        return x.tolist()

    assert on_ranks(run) == [[7.0] * 3] * 2


@promise("After `send` the array may be changed")
def test_send_lets_go() -> None:
    def run(rank: int) -> float:
        x = np.ones(4)
        if rank == 0:
            dist.send(x, 1)
            x[:] = 0
        else:
            dist.recv(x, 0)
        return float(x.sum())

    assert on_ranks(run) == [0.0, 4.0]


@promise("`recv` without `src` takes from any rank and returns which one it was")
def test_recv_from_any() -> None:
    def run(rank: int) -> set[tuple[int, int]]:
        if rank:
            dist.send(np.array([rank * 10]), 0)
            return set()
        x = np.zeros(1, np.int64)
        return {(dist.recv(x), int(x[0])) for _ in range(2)}

    assert on_ranks(run, 3)[0] == {(1, 10), (2, 20)}


@promise("`tag` matches a `recv` to its `send`")
def test_tags() -> None:
    def run(rank: int) -> list[int]:
        if rank == 0:
            works = [dist.isend(np.array([tag]), 1, tag=tag) for tag in (1, 2)]
            for work in works:
                wait(work)
            return []
        x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
        dist.recv(y, 0, tag=2)
        dist.recv(x, 0, tag=1)
        return [int(x[0]), int(y[0])]

    assert on_ranks(run)[1] == [1, 2]


@promise("Messages with one tag arrive in the order in which they were sent")
def test_messages_keep_their_order() -> None:
    def run(rank: int) -> list[int]:
        got = []
        for number in range(5):
            x = np.array([number if rank == 0 else -1])
            dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
            got.append(int(x[0]))
        return got

    assert on_ranks(run)[1] == [0, 1, 2, 3, 4]


@promise("`isend` and `irecv` return a `Work` at once; the data are there after `wait`")
def test_isend_and_irecv() -> None:
    def run(rank: int) -> float:
        x = np.full(2, float(rank + 1))
        work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
        assert isinstance(work, dist.Work)
        assert work.wait()
        assert work.is_completed()
        return float(x[0])

    assert on_ranks(run) == [1.0, 1.0]


@promise("`irecv` may be posted before the message is sent")
def test_irecv_first() -> None:
    def run(rank: int) -> list[float]:
        got, mine = np.zeros(1), np.array([float(rank)])
        work = dist.irecv(got, 1 - rank)
        dist.send(mine, 1 - rank)
        wait(work)
        return got.tolist()

    assert on_ranks(run) == [[1.0], [0.0]]


@promise("`irecv` without `src` takes from any rank; `Work.source_rank` says which one")
def test_irecv_from_any() -> None:
    def run(rank: int) -> int | None:
        x = np.zeros(1)
        if rank == 1:
            dist.send(x, 0)
            return None
        work = dist.irecv(x)
        wait(work)
        assert work is not None
        return work.source_rank()

    assert on_ranks(run) == [1, None]


@promise("`dst` and `src` are ranks of the job also where a group is given")
def test_ranks_of_the_job() -> None:
    def run(rank: int) -> int | None:
        group = dist.new_group([1, 2])
        x = np.array([rank])
        if rank == 1:
            dist.send(x, 2, group)
        if rank == 2:
            return dist.recv(x, 1, group)
        return None

    assert on_ranks(run, 3) == [None, None, 1]


@promise("`group_dst` and `group_src` are ranks of the group instead")
def test_ranks_of_the_group() -> None:
    def run(rank: int) -> int | None:
        group = dist.new_group([1, 2])
        x = np.array([rank])
        if rank == 1:
            dist.send(x, group=group, group_dst=1)
        if rank == 2:
            return dist.recv(x, group=group, group_src=0)
        return None

    assert on_ranks(run, 3) == [None, None, 1]


@promise("`dst` together with `group_dst` is refused")
def test_both_ranks() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="group_dst"):
            dist.send(np.zeros(1), dst=1, group_dst=1)

    on_ranks(run)


@promise("A `send` to oneself raises `ValueError`", here="more", note="unless an `irecv` is posted")
def test_send_to_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a program without other threads, which might call recv.
    monkeypatch.setattr("distdbg.runtime.backends.cpu.is_alone", lambda: True)

    def run(rank: int) -> float:
        with pytest.raises(ValueError, match="send to oneself"):
            dist.send(np.ones(1), rank)
        x = np.zeros(1)
        work = dist.irecv(x, rank)
        dist.send(np.ones(1), rank)
        wait(work)
        return float(x[0])

    assert on_ranks(run, 1) == [1.0]


@promise("A rank that does not exist is refused")
def test_no_such_rank() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="dst=5 is not in group"):
            dist.send(np.zeros(1), 5)

    on_ranks(run)


@promise("`send` and `recv` outside of the group only warn; `recv` returns -1 and `irecv` `None`")
def test_outside_of_the_group() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0])
        if rank == 1:
            assert dist.recv(np.zeros(1), 0, group) == -1
            assert dist.irecv(np.zeros(1), 0, group) is None

    with pytest.warns(UserWarning, match="recv was called on rank 1"):
        on_ranks(run)


@promise("`batch_isend_irecv` starts sends and receives together, without a deadlock in a ring")
def test_a_ring() -> None:
    def run(rank: int) -> float:
        mine, got = np.array([float(rank)]), np.zeros(1)
        send = dist.P2POp(dist.isend, mine, (rank + 1) % 3)
        recv = dist.P2POp(dist.irecv, got, (rank - 1) % 3)
        for work in dist.batch_isend_irecv([send, recv]):
            work.wait()
        return float(got[0])

    assert on_ranks(run, 3) == [2.0, 0.0, 1.0]


@promise("`batch_isend_irecv` returns a `Work` for each op of the list")
def test_the_works_of_a_batch() -> None:
    def run(rank: int) -> int:
        x = np.zeros((3, 1))
        op = dist.isend if rank == 0 else dist.irecv
        works = dist.batch_isend_irecv([dist.P2POp(op, row, 1 - rank) for row in x])
        for work in works:
            work.wait()
        return len(works)

    assert on_ranks(run) == [3, 3]


@promise("`P2POp` takes `isend` or `irecv`, and nothing else")
def test_p2p_op() -> None:
    def run(rank: int) -> None:
        op = dist.P2POp(dist.isend, np.zeros(1), 1, tag=3)
        assert (op.peer, op.tag) == (1, 3)
        with pytest.raises(ValueError, match="isend or irecv"):
            dist.P2POp(dist.send, np.zeros(1), 1)

    on_ranks(run)


@promise("The ops of a batch are on one group")
def test_a_batch_of_two_groups() -> None:
    def run(rank: int) -> None:
        ops = [
            dist.P2POp(dist.isend, np.zeros(1), 1 - rank, group)
            for group in (None, dist.new_group())
        ]
        with pytest.raises(ValueError, match="one group"):
            dist.batch_isend_irecv(ops)

    on_ranks(run)


@promise("An empty batch, or one of anything but `P2POp`, is refused")
def test_a_batch_of_nothing() -> None:
    def run(rank: int) -> None:
        for batch in ([], [dist.isend]):
            with pytest.raises(ValueError, match="batch_isend_irecv"):
                dist.batch_isend_irecv(batch)  # type: ignore[arg-type]

    on_ranks(run, 1)


@promise(
    "The two ends of a message agree on its size and dtype",
    here="stricter",
    note="a receive that differs is an error on both ranks, its array stays as it was",
)
def test_a_message_of_another_size() -> None:
    def run(rank: int) -> None:
        x = np.full(2 + rank, 5.0)
        with pytest.raises(dist.MismatchError):
            dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        assert (x == 5).all()

    on_ranks(run)
