"""The debug level of a World, and names given to ops."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError, UsageError
from distdbg.ops.engine import Engine
from distdbg.runtime.backends.registry import Backend
from distdbg.runtime.process.world import World, current, use
from distdbg.runtime.store import Store
from tests.support.store_engine import StoreEngine
from tests.support.store_ranks import run_store_ranks


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
        assert caught.value.details[0].startswith("ranks 0-1 called all_reduce (layer 1) at test_")

    run_store_ranks(run, 2, backend="gloo")


def test_detail_is_the_level_when_nobody_says_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTDBG_DEBUG", raising=False)
    monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG", raising=False)
    with use(World()):
        assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "Info")
    with use(World()):
        assert dist.get_debug_level() is dist.DebugLevel.INFO
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    with use(World()):
        assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    monkeypatch.setenv("DISTDBG_DEBUG", "off")
    with use(World()):
        assert dist.get_debug_level() is dist.DebugLevel.OFF


def test_torchs_off_leaves_the_comparison_on_and_ours_says_once_that_it_is_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def program() -> str:
        array = np.ones(2, np.float32 if dist.get_rank() else np.float64)
        try:
            dist.all_reduce(array)
        except dist.MismatchError:
            return "mismatch"
        except dist.DistError as error:
            return type(error).__name__
        return "garbage"

    monkeypatch.delenv("DISTDBG_DEBUG", raising=False)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    assert dist.run_threads(program, 2, timeout_s=60) == ["mismatch"] * 2
    assert "the check is off" not in caplog.text
    monkeypatch.setenv("DISTDBG_DEBUG", "OFF")
    assert "mismatch" not in dist.run_threads(program, 2, timeout_s=60)
    assert caplog.text.count("the check is off (DISTDBG_DEBUG=OFF)") == 1


def test_a_bad_level_is_an_error_at_first_use_not_at_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISTDBG_DEBUG", raising=False)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "VERBOSE")
    with use(World()):
        with pytest.raises(ConfigError, match="TORCH_DISTRIBUTED_DEBUG='VERBOSE'"):
            dist.get_debug_level()
        with pytest.raises(ConfigError, match="expected one of off, info, detail"):
            dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        assert not dist.is_initialized()
        dist.set_debug_level(dist.DebugLevel.INFO)


class Heard:
    """Notes the levels that an engine is told."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.levels: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def set_level(self, level: int) -> None:
        self.levels.append(level)


def test_a_change_reaches_all_living_groups_of_the_rank_and_no_other_ranks() -> None:
    def run(rank: int) -> list[list[int]]:
        groups = [dist.group.WORLD, dist.new_group([0, 1]), dist.new_group([1, 0], group_desc="b")]
        heard = []
        for group in groups:
            assert group is not None
            ear = Heard(group.engine)
            group.engine = ear
            heard.append(ear)
        dist.destroy_process_group(groups.pop())
        if rank == 1:
            dist.set_debug_level(dist.DebugLevel.OFF)
            dist.set_debug_level(dist.DebugLevel.INFO)
        dist.barrier()
        assert current().debug_level is (dist.DebugLevel.INFO if rank else dist.DebugLevel.DETAIL)
        return [ear.levels for ear in heard]

    assert run_store_ranks(run, 2) == [[[], [], []], [[0, 1], [0, 1], []]]


def test_a_new_group_is_told_the_level_before_its_first_op() -> None:
    class Listening(StoreEngine):
        def set_level(self, level: int) -> None:
            self.level = level

    made: list[Listening] = []

    def make(store: Store, rank: int, size: int, timeout: timedelta) -> Listening:
        made.append(Listening(store, rank, size, timeout.total_seconds()))
        return made[-1]

    Backend.register_backend("level_teller", make, devices="cpu")

    def run(rank: int) -> None:
        dist.set_debug_level(dist.DebugLevel.INFO)
        dist.new_group([0, 1], backend="level_teller")

    run_store_ranks(run, 2)
    assert [engine.level for engine in made] == [1, 1]


def test_living_groups_are_compared_at_the_highest_level_of_their_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DISTDBG_DEBUG", "off")
    #: What both ranks set, each at its own time.
    levels = [
        (None, None),
        (None, dist.DebugLevel.DETAIL),
        (dist.DebugLevel.INFO, dist.DebugLevel.OFF),
        (dist.DebugLevel.OFF, dist.DebugLevel.OFF),
        (dist.DebugLevel.DETAIL, dist.DebugLevel.DETAIL),
    ]

    def run(rank: int) -> list[list[bool]]:
        groups = [dist.group.WORLD, dist.new_group([1, 0], sort_ranks=False)]
        op = (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank]
        found = []
        for pair in levels:
            if (level := pair[rank]) is not None:
                dist.set_debug_level(level)
            for group in groups:
                try:
                    dist.all_reduce(np.ones(2), op, group=group)
                    found.append(False)
                except dist.MismatchError:
                    found.append(True)
                dist.barrier(group)  # nobody is told the next level while this op still runs
        return [found]

    noticed = [False, True, True, False, True]
    expected = [is_noticed for is_noticed in noticed for _ in range(2)]
    assert run_store_ranks(run, 2, backend="gloo") == [[expected], [expected]]
