"""Sends and recvs that do not fit: both ranks learn both lines; a wrong tag is told at the timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError, OpTimeout


def differ_blocking(rank: int) -> None:
    if rank == 0:
        dist.send(np.ones(4, np.float32), 1, tag=3)
    else:
        dist.recv(np.zeros(3, np.float32), 0, tag=3)


def differ_in_flight(rank: int) -> None:
    if rank == 0:
        work = dist.isend(np.ones(1 << 16), 1)
    else:
        work = dist.irecv(np.zeros(1 << 16, np.int64), 0)
    assert work is not None
    work.wait()


def errors_of(differ: Callable[[int], Any]) -> list[MismatchError]:
    def run() -> MismatchError:
        rank = dist.get_rank()
        with pytest.raises(MismatchError) as caught:
            differ(rank)
        x = np.full(1, float(rank))
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        assert x[0] == 0.0
        return caught.value

    return dist.run_threads(run, 2, timeout_s=20.0)


@pytest.mark.parametrize("differ", [differ_blocking, differ_in_flight])
def test_both_ranks_learn_both_lines(differ: Callable[[int], Any]) -> None:
    line = differ.__code__.co_firstlineno
    for error in errors_of(differ):
        assert error.ranks == [0, 1]
        assert f"rank 0 called send at test_messages.py:{line + 2} ({differ.__name__})" in str(
            error
        )
        assert f"rank 1 called recv at test_messages.py:{line + 4} ({differ.__name__})" in str(
            error
        )
        assert "the group is still usable" in str(error)
        assert [side["ranks"] for side in error.sides] == [[0], [1]]


def test_a_long_name_in_any_script_leaves_the_file_and_the_line() -> None:
    """What has no room in a message's header is cut between characters, and never of the file's name."""
    name = "x" + "\U00020000" * 200
    scope: dict[str, Any] = {"dist": dist, "np": np}
    body = f"def {name}(rank):\n    x = np.zeros(3 + rank)\n"
    body += "    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)"
    exec(compile(body, "/home/me/" + "long_folder/" * 40 + "train.py", "exec"), scope)

    def differ() -> str:
        with pytest.raises(dist.MismatchError) as caught:
            scope[name](dist.get_rank())
        return str(caught.value)

    for text in dist.run_threads(differ, 2, timeout_s=20.0):
        assert "rank 0 called send at train.py:3 (...\U00020000" in text
        assert "rank 1 called recv at train.py:3 (...\U00020000" in text


def test_amounts_and_the_tag_are_told() -> None:
    for error in errors_of(differ_blocking):
        assert "rank 0 sent 4 float32, rank 1 expects 3 float32 (tag 3)" in error.what


def test_a_recv_that_waits_for_another_tag_is_told_which_one_came() -> None:
    is_sent = threading.Event()

    def run() -> str:
        dist.barrier()
        if dist.get_rank() == 0:
            work = dist.isend(np.ones(2), 1, tag=3)
            is_sent.set()
            assert work is not None
            with pytest.raises(dist.DistError):
                work.wait()
            return ""
        assert is_sent.wait(120)
        group = dist.group.WORLD
        assert group is not None
        group.set_timeout(timedelta(seconds=0.3))
        with pytest.raises(OpTimeout) as caught:
            dist.recv(np.zeros(2), 0, tag=4)
        return str(caught.value)

    seen = dist.run_threads(run, 2, timeout_s=20.0)
    assert "rank 0 sends tag 3 (16 bytes), rank 1 waits for tag 4" in seen[1]
