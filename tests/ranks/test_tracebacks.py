"""What a user reads when nobody catches an error: one traceback, which ends with what to know."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

import distdbg as dist
from distdbg.native import NativeError


def tell(go_wrong: Callable[[int], None]) -> list[Any] | None:
    dist.init_process_group(timeout=timedelta(seconds=30))
    dist.barrier()
    try:
        go_wrong(dist.get_rank())
    except RuntimeError as error:
        is_known = isinstance(error.__context__, NativeError)
        return ["".join(traceback.format_exception(error)), is_known]
    return None


def mismatch() -> list[Any] | None:
    return tell(lambda rank: dist.all_reduce(np.ones(3 + rank)))


def death() -> list[Any] | None:
    def go_wrong(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(np.ones(3))

    return tell(go_wrong)


def test_a_mismatch_has_one_traceback_and_keeps_what_native_code_said(
    ranks: Callable[..., Any],
) -> None:
    for text, is_known in ranks(mismatch, 2):
        assert text.count("Traceback") == 1
        assert "distdbg.errors.MismatchError: all_reduce #2" in text
        assert is_known


def test_a_lost_peer_has_one_traceback(ranks: Callable[..., Any]) -> None:
    text, is_known = ranks(death, 2, expect_exit={1: -signal.SIGKILL})[0]
    assert text.count("Traceback") == 1
    assert "distdbg.errors.PeerLost: rank 1 died (signal 9, SIGKILL)" in text
    assert is_known


def parse(cell: str) -> float:
    return float(cell)


def cleanup() -> list[Any] | None:
    """Rank 1 fails by itself, and a `finally` makes an op that the other one does not make."""

    def go_wrong(rank: int) -> None:
        try:
            if rank == 1:
                parse("--")
            dist.all_reduce(np.ones(3))
        finally:
            if rank == 1:
                dist.barrier()

    found = tell(go_wrong)
    assert found is not None
    return [*found, dist.get_rank()]


def test_the_error_that_a_cleanup_was_handling_stays_and_has_no_words_of_native_code(
    ranks: Callable[..., Any],
) -> None:
    first, second = ranks(cleanup, 2)
    assert first[0].count("Traceback") == 1
    text = second[0]
    assert text.count("Traceback") == 2
    error, during, op = text.partition("During handling of the above exception")
    assert during
    assert error.strip().endswith("ValueError: could not convert string to float: '--'")
    assert "distdbg.errors.MismatchError: op #2" in op
    assert "NativeError" not in text
