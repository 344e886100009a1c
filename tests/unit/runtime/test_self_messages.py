"""Messages of a rank to itself: what matches is carried out and leaves nothing, the rest is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError, UsageError
from distdbg.runtime.backends.self_messages import is_alone
from tests.support.store_ranks import run_store_ranks


def run_alone(run: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """One rank, as if its thread were the only one of the program."""
    monkeypatch.setattr("distdbg.runtime.backends.cpu.is_alone", lambda: True)
    (result,) = run_store_ranks(run, 1, backend="gloo")
    return result


def test_a_send_that_no_recv_waits_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(rank: int) -> None:
        with pytest.raises(UsageError, match=r"send to oneself .* can never complete") as caught:
            dist.send(np.ones(1), rank, tag=3)
        assert "no irecv from itself with tag 3" in caught.value.what
        assert "isend" not in caught.value.what
        assert isinstance(caught.value, ValueError)
        dist.barrier()  # nothing was sent: the group is as good as before

    run_alone(run, monkeypatch)


def test_a_recv_that_no_send_was_begun_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(rank: int) -> None:
        with pytest.raises(UsageError, match=r"recv from oneself .* has begun no isend to itself"):
            dist.recv(np.ones(1), rank)
        dist.barrier()

    run_alone(run, monkeypatch)


@pytest.mark.parametrize("tags", [(0, 1), (1, 0)])
def test_a_message_of_another_tag_is_no_other_side(
    tags: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(rank: int) -> None:
        work = dist.irecv(np.zeros(1), rank, tag=tags[0])
        with pytest.raises(UsageError):
            dist.send(np.ones(1), rank, tag=tags[1])
        dist.send(np.ones(1), rank, tag=tags[0])
        assert work is not None
        work.wait()

    run_alone(run, monkeypatch)


def test_what_was_begun_before_matches_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(rank: int) -> list[float]:
        x, got = np.zeros(1), []
        for value in (1.0, 2.0):
            work = dist.irecv(x)  # from any rank
            dist.send(np.full(1, value), rank)
            assert work is not None
            work.wait()
            got.append(float(x[0]))
        for value in (3.0, 4.0):
            work = dist.isend(np.full(1, value), rank)
            assert dist.recv(x, rank) == rank
            assert work is not None
            work.wait()
            got.append(float(x[0]))
        ops = [dist.P2POp(dist.irecv, x, rank), dist.P2POp(dist.isend, np.full(1, 5.0), rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        got.append(float(x[0]))
        for refused in (dist.send, dist.recv):  # nothing of all that is left
            with pytest.raises(UsageError):
                refused(x, rank)
        return got

    assert run_alone(run, monkeypatch) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("sends_first", [True, False])
def test_a_message_that_differs_names_the_line_of_its_send(sends_first: bool) -> None:
    def run(rank: int) -> None:
        small, large = np.ones(1), np.ones(2)
        ops = [lambda: dist.isend(small, rank), lambda: dist.irecv(large, rank)]
        works: dict[int, Any] = {}
        for place in (0, 1) if sends_first else (1, 0):
            works[place] = ops[place]()
        sent, received = works[0], works[1]
        assert sent is not None
        assert received is not None
        sent.wait()  # it is buffered
        with pytest.raises(MismatchError) as caught:
            received.wait()
        text = str(caught.value)
        assert "unknown line" not in text
        assert text.count("test_self_messages.py:") >= 2

    run_store_ranks(run, 1, backend="gloo")


def test_only_threads_of_the_program_count() -> None:
    over = threading.Event()

    def alone_beside(name: str) -> bool:
        thread = threading.Thread(target=over.wait, name=name)
        thread.start()
        others = [t for t in threading.enumerate() if t is not thread]
        found = is_alone()
        over.set()
        thread.join()
        over.clear()
        assert len(others) >= 1
        return found

    if is_alone():  # else the runner of the tests has threads of its own
        assert alone_beside("distdbg terminal")
    assert not alone_beside("prefetch")
