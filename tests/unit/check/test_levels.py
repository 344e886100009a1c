"""The debug level of a World, and names given to ops."""

from __future__ import annotations

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from distdbg.runtime.world import World, current, use
from distdbg.testing.store_ranks import run_store_ranks


def test_the_environment_decides_until_the_level_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_DEBUG", "INFO")
    with use(World()):
        assert dist.get_debug_level() is dist.DebugLevel.INFO
        dist.set_debug_level(dist.DebugLevel.OFF)
        assert dist.get_debug_level() is dist.DebugLevel.OFF
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() is dist.DebugLevel.INFO
        with pytest.raises(UsageError, match="DebugLevel"):
            dist.set_debug_level("OFF")  # type: ignore[arg-type]


def test_a_comm_name_lasts_as_long_as_its_block() -> None:
    def run(rank: int) -> None:
        recorder = current().recorder
        assert recorder is not None
        with dist.record_comm("outer"):
            with dist.record_comm("inner"):
                assert recorder.comm == "inner"
            assert recorder.comm == "outer"
        assert recorder.comm == ""

    run_store_ranks(run, 1, backend="gloo")


@pytest.mark.parametrize("async_op", [False, True])
def test_a_comm_name_stands_in_the_errors_of_its_ops(async_op: bool) -> None:
    def run(rank: int) -> None:
        def reduce() -> None:
            work = dist.all_reduce(np.zeros(2 + rank), async_op=async_op)
            if work is not None:
                work.wait()

        with dist.record_comm("layer 1"), pytest.raises(dist.MismatchError) as caught:
            reduce()
        assert caught.value.details[0].startswith("rank 0 called all_reduce (layer 1) at test_")

    run_store_ranks(run, 2, backend="gloo")
