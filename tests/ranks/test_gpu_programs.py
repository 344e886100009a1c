"""What tests/gpu runs on a GPU, with NumPy in CuPy's place: that the programs themselves are right."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distdbg.runtime.backends.nccl import library
from tests.gpu import test_groups
from tests.unit.nccl.stand_in import Machine, StandInArray


class Played(np.ndarray):
    """An array of the host with the method of CuPy's by which one gets there."""

    def get(self) -> Any:
        return np.array(self)


def made_by(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **more: function(*args, **more).view(Played)


def play_cupy() -> None:
    device = SimpleNamespace(use=lambda: None, synchronize=lambda: None)
    makers = {
        name: made_by(getattr(np, name))
        for name in ("array", "arange", "concatenate", "ones", "zeros")
    }
    # A stand-in has what the programs ask for, and is no module.
    sys.modules["cupy"] = SimpleNamespace(  # type: ignore[assignment]  # a stand-in
        cuda=SimpleNamespace(Device=lambda *_: device, Stream=lambda **_: nullcontext()),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
        **makers,
    )


def play(program: str, **more: Any) -> Any:
    play_cupy()
    return getattr(test_groups, program)(**more)


def play_over_nccl(program: str) -> Any:
    """With the recording stand-in for NCCL, whose ops end at once."""
    rank = int(os.environ["RANK"])
    play_cupy()
    sys.modules["cupy"].ones = lambda *args: StandInArray(np.ones(*args), rank)  # type: ignore[attr-defined]  # as above
    library._library = Machine().library()
    return getattr(test_groups, program)()


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_told_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    found = ranks(play_over_nccl, 2, timeout=60.0, program="op_is_late")
    assert found[0] == ["OpTimeout"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "more", "expected"),
    [
        ("conformance", {"backend": "gloo", "gpus": 1}, [{}, {}]),
        ("large", {"ipc": "on"}, [[0] * 6] * 2),
        ("exchange", {"ipc": "on"}, [[True] * 2, [True] * 8]),
        ("trade", {"ipc": "off", "transport": "tcp"}, [[True] * 2] * 2),
        ("op_is_late_on_one_gpu", {"ipc": "off"}, [[1], []]),
    ],
)
def test_a_program_does_on_the_host_what_it_expects_of_a_gpu(
    ranks: Callable[..., list[Any]], program: str, more: dict[str, Any], expected: list[Any]
) -> None:
    assert ranks(play, 2, timeout=120.0, program=program, **more) == expected


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("one_differs_and_one_dies_on_one_gpu", {}),
        ("message_differs_is_late_and_dies", {"ipc": "off", "transport": "tcp"}),
    ],
)
def test_a_program_that_dies_names_the_one_that_died(
    ranks: Callable[..., list[Any]], program: str, more: dict[str, Any]
) -> None:
    found = ranks(
        play, 2, timeout=120.0, program=program, expect_exit={1: -signal.SIGKILL}, **more
    )  # fmt: skip
    assert found[0] == [1]
