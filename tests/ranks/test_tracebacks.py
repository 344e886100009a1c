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
