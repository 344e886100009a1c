"""The level of the check among ranks, and suspicions by call sites. Ranks are threads where they can be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.check import options
from distdbg.errors import MismatchError

Ranks = Callable[..., list[Any]]


def run(program: Callable[[int], Any], size: int = 2) -> list[Any]:
    return dist.run_threads(lambda: program(dist.get_rank()), size, timeout_s=120.0)


def swap(rank: int) -> float:
    x, y = np.ones(3), np.full(3, 10.0)

    def first() -> None:
        dist.all_reduce(x)

    def second() -> None:
        dist.all_reduce(y)

    for _ in range(3):
        for reduce in (first, second) if rank != 1 else (second, first):
            reduce()
    return float(x[0])


def test_two_swapped_ops_are_a_warning_on_every_rank_once(
    checked: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    checked(ORDER=1)
    with caplog.at_level(logging.WARNING, logger="distdbg.check"):
        run(swap, 3)
    texts = [record.getMessage() for record in caplog.records if record.name == "distdbg.check"]
    assert len(texts) == 3
    for text in texts:
        assert "op #2 and op #1 on group 'world' look swapped between ranks" in text
        assert "(swap.<locals>.first)" in text
        assert "(swap.<locals>.second)" in text
        assert "rank 1 called it at" in text
        assert "ranks 0,2 called it at" in text
    assert {text[:8] for text in texts} == {"[rank 0]", "[rank 1]", "[rank 2]"}


def test_an_engine_hands_out_its_suspicions(checked: Callable[..., None]) -> None:
    checked(ORDER=1)

    def program(rank: int) -> list[Any]:
        found: list[Any] = []
        world = dist.group.WORLD
        assert world is not None
        world.engine.on_suspicion = found.append  # type: ignore[attr-defined]  # the checked engine of this test
        x = np.ones(4)
        work = dist.all_reduce(np.ones((2, 3)) if rank else np.ones((3, 2)).T, async_op=True)
        assert work is not None
        work.wait()
        if rank == 0:
            dist.all_reduce(x)
            dist.barrier()
            dist.all_reduce(x)
        else:
            for _ in range(1):
                dist.all_reduce(x)
            dist.barrier()
            dist.all_reduce(x)
        return found

    for found in run(program):
        assert [each.seq for each in found] == [1]
        assert "different memory layouts" in found[0].text


def test_branches_of_their_own_are_no_suspicion(
    checked: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    checked(ORDER=1)

    def program(rank: int) -> None:
        x = np.ones(3)
        for _ in range(30):
            if rank == 0:
                dist.broadcast(x, src=0)
                dist.all_reduce(x)
            else:
                dist.broadcast(x, src=0)
                dist.all_reduce(x)
            dist.all_reduce(x)

    with caplog.at_level(logging.WARNING, logger="distdbg.check"):
        run(program, 3)
    assert [record for record in caplog.records if record.name == "distdbg.check"] == []


def test_at_off_nothing_is_compared_and_one_rank_at_detail_is_enough() -> None:
    def program(rank: int) -> None:
        x = np.ones(10)
        dist.set_debug_level(dist.DebugLevel.OFF)
        dist.all_reduce(x if rank == 0 else np.ones((2, 5)))
        assert x[0] in (1.0, 2.0)
        for level in (dist.DebugLevel.INFO, dist.DebugLevel.DETAIL):
            if rank == 1:
                dist.set_debug_level(level)
            before = x.copy()
            with pytest.raises(MismatchError):
                dist.all_reduce(x if rank == 0 else np.ones((2, 5)))
            assert (x == before).all()
        dist.all_reduce(x)

    run(program)


def go_on_wrongly(seed: int) -> str:
    dist.init_process_group(timeout=timedelta(seconds=60))
    assert dist.group.WORLD is not None
    dist.group.WORLD.set_timeout(timedelta(seconds=2))
    dist.set_debug_level(dist.DebugLevel.OFF)
    rank = dist.get_rank()
    random = np.random.default_rng(seed * 10 + rank)
    try:
        for _ in range(30):
            x = np.ones(int(random.integers(1, 400_000)))
            match int(random.integers(0, 4)):
                case 0:
                    dist.all_reduce(x)
                case 1:
                    dist.broadcast(x, src=int(random.integers(0, 2)))
                case 2:
                    dist.all_gather([np.zeros_like(x) for _ in range(2)], x)
                case _:
                    half = x[: len(x) // 2 * 2]
                    dist.all_to_all_single(np.zeros_like(half), half)
    except dist.DistError as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("seed", [1, 2])
def test_wrong_programs_at_off_crash_nothing(ranks: Ranks, seed: int) -> None:
    # They may end in any way but a crash: with wrong data, or with an error of ours.
    assert all(ranks(go_on_wrongly, 2, seed=seed))


def test_the_bits_are_those_of_native_code() -> None:
    assert (options.NONFINITE, options.BUFFERS, options.ORDER) == (1, 2, 4)
