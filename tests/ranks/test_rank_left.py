"""A rank that leaves while others need it: each of them learns who left, and how."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import PeerLost, RankLeft


def wait_for_a_work() -> None:
    work = dist.all_reduce(np.ones(4), async_op=True)
    assert work is not None
    work.wait()


WAITS: dict[str, Callable[[], object]] = {
    "": lambda: dist.all_reduce(np.ones(4)),
    "async": wait_for_a_work,
    "recv": lambda: dist.recv(np.ones(1), src=2),
}


def wait_for_files(paths: Sequence[Path]) -> None:
    deadline = time.monotonic() + 120
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"{paths} are not all there"
        time.sleep(0.005)  # nothing tells about a file of another process


def wait_for_rank_2(how: str, op: str, folder: str = "") -> list[Any] | None:
    reported = [Path(folder, f"rank {rank} was told") for rank in (0, 1)]
    dist.init_process_group(timeout=timedelta(seconds=60))
    dist.all_reduce(np.ones(1))
    if dist.get_rank() == 2:
        match how:
            case "raises":
                raise ValueError("no data")
            case "exits":
                sys.exit(5)
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "vanishes":
                os._exit(3)
            case "destroys":
                dist.destroy_process_group()
                wait_for_files(reported)  # its process lives on, so that only the group tells
        return None
    started = time.monotonic()
    with pytest.raises(PeerLost) as caught:
        WAITS[op]()
    waited_s = time.monotonic() - started
    error = caught.value
    with pytest.raises(PeerLost) as again:
        dist.barrier()
    if how == "destroys":
        reported[dist.get_rank()].touch()
    assert again.value.how == error.how
    return [
        type(error).__name__,
        error.what,
        error.peer,
        waited_s < 30,
        ([*error.details, ""])[0].partition(";")[0],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ("returns", 0, "left (returned, exit code 0)"),
        ("raises", 1, "left (raised ValueError: no data, exit code 1)"),
        ("exits", 5, "left (exit code 5)"),
        ("destroys", 0, "left (destroyed the group at test_rank_left.py:{line})"),
    ],
)
def test_a_rank_that_leaves_is_named_with_what_it_did(
    ranks: Callable[..., list[Any]], tmp_path: Path, how: str, code: int, why: str
) -> None:
    codes = {2: code} if code else None
    seen = ranks(wait_for_rank_2, 3, expect_exit=codes, how=how, op="", folder=str(tmp_path))
    lines, first = inspect.getsourcelines(wait_for_rank_2)
    why = why.format(line=first + ["destroy_process_group" in line for line in lines].index(True))
    assert seen[0] == seen[1]
    assert seen[0] == [
        "RankLeft",
        f"all_reduce #2 on group 'world' cannot complete: rank 2 {why}",
        2,
        True,
        "rank 2 last called op #1 on this group",
    ]


@pytest.mark.parametrize("op", ["async", "recv"])
def test_so_is_it_in_other_ops(ranks: Callable[..., list[Any]], op: str) -> None:
    seen = ranks(wait_for_rank_2, 3, how="returns", op=op)
    assert seen[0][0] == seen[1][0] == "RankLeft"
    assert "cannot complete: rank 2 left (returned, exit code 0)" in seen[0][1]


@pytest.mark.parametrize(("how", "code"), [("dies", -signal.SIGKILL), ("vanishes", 3)])
def test_a_rank_that_dies_has_not_left(
    ranks: Callable[..., list[Any]], how: str, code: int
) -> None:
    seen = ranks(wait_for_rank_2, 3, expect_exit={2: code}, how=how, op="")
    assert seen[0][0] == seen[1][0] == "PeerLost"


def test_threads_that_return_and_raise_leave_too() -> None:
    errors: list[BaseException] = []
    words = "no data"

    def wait_for_zero(how: str) -> None:
        if dist.get_rank() == 0:
            if how == "raises":
                raise ValueError(words)
            return
        try:
            dist.barrier()
        except RankLeft as error:
            errors.append(error)
            raise

    with pytest.raises(RankLeft, match=r"barrier #1 .*: rank 0 left \(returned\)"):
        dist.run_threads(wait_for_zero, 3, "returns")
    errors.clear()
    with pytest.raises(ValueError, match="no data"):
        dist.run_threads(wait_for_zero, 3, "raises")
    assert len(errors) == 2
    assert all("rank 0 left (raised ValueError: no data)" in str(error) for error in errors)
    errors.clear()
    words = "unable to allocate 8 GiB for an array with too many elements"
    with pytest.raises(ValueError, match=words):
        dist.run_threads(wait_for_zero, 3, "raises")
    cut = "rank 0 left (raised ValueError: unable to allocate 8 GiB for an array ...)"
    assert all(cut in str(error) for error in errors)
