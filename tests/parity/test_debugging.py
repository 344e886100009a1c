"""monitored_barrier, debug levels, log levels, breakpoint."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.process.world import World, use
from tests.parity.promise import on_ranks, promise

LEVELS = dist.DebugLevel


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without variables; the log is afterwards as it was."""
    for name in ("DISTDBG_DEBUG", "DISTDBG_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger("distdbg")
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@promise("`monitored_barrier` returns when all ranks have called it")
def test_monitored_barrier() -> None:
    is_there = threading.Event()

    def run(rank: int) -> bool:
        if rank == 1:
            is_there.set()
        dist.monitored_barrier()
        return is_there.is_set()

    assert on_ranks(run) == [True, True]


@promise("The documentation's example: a rank that does not call `monitored_barrier` is named")
def test_monitored_barrier_names_the_rank() -> None:
    is_over = threading.Event()

    def run(rank: int) -> None:
        if rank == 1:
            is_over.wait(120)
            return
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.monitored_barrier(timeout=timedelta(milliseconds=100))
        is_over.set()

    on_ranks(run)


@promise(
    "`monitored_barrier(wait_all_ranks=True)` names all ranks that are missing, not the first",
    here="more",
    note="without it as well, and on every rank",
)
@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_monitored_barrier_names_all(wait_all_ranks: bool) -> None:
    is_over = threading.Event()

    def run(rank: int) -> list[int]:
        if rank:
            is_over.wait(120)
            return []
        with pytest.raises(dist.OpTimeout) as caught:
            dist.monitored_barrier(timeout=timedelta(seconds=0.1), wait_all_ranks=wait_all_ranks)
        is_over.set()
        return caught.value.missing

    assert on_ranks(run, 3)[0] == [1, 2]


@promise("`monitored_barrier` takes the group's timeout when none is given")
def test_monitored_barrier_of_a_group() -> None:
    is_over = threading.Event()

    def run(rank: int) -> None:
        group = dist.new_group()
        group.set_timeout(timedelta(milliseconds=100))
        if rank == 1:
            is_over.wait(120)
            return
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.monitored_barrier(group)
        is_over.set()

    on_ranks(run)


@promise("`set_debug_level` sets the level that `get_debug_level` returns")
def test_set_debug_level() -> None:
    with use(World()):
        for level in (LEVELS.OFF, LEVELS.INFO, LEVELS.DETAIL):
            dist.set_debug_level(level)
            assert dist.get_debug_level() is level


@promise("`TORCH_DISTRIBUTED_DEBUG` is `OFF`, `INFO` or `DETAIL`, in upper or lower case")
def test_the_variable_of_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, level in (("INFO", LEVELS.INFO), ("detail", LEVELS.DETAIL)):
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", text)
        with use(World()):
            assert dist.get_debug_level() is level


@promise(
    "The level is `OFF` when nothing is set",
    here="different",
    note="`DETAIL`, also where `TORCH_DISTRIBUTED_DEBUG` is `OFF`",
)
def test_the_level_without_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with use(World()):
        assert dist.get_debug_level() is LEVELS.DETAIL
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    with use(World()):
        assert dist.get_debug_level() is LEVELS.DETAIL


@promise("`set_debug_level_from_env` reads the variable again")
def test_set_debug_level_from_env(monkeypatch: pytest.MonkeyPatch) -> None:
    with use(World()):
        dist.set_debug_level(LEVELS.OFF)
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() is LEVELS.INFO


@promise("A value of the variable that is no level is an error")
def test_a_wrong_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "LOUD")
    with use(World()), pytest.raises(RuntimeError, match="TORCH_DISTRIBUTED_DEBUG"):
        dist.get_debug_level()


@promise("`set_debug_level` takes a `DebugLevel` and nothing else")
def test_a_level_of_another_type() -> None:
    with use(World()), pytest.raises((TypeError, ValueError), match="DebugLevel"):
        dist.set_debug_level("INFO")  # type: ignore[arg-type]


@promise("With `DETAIL` collectives whose arrays differ are an error that shows both shapes")
def test_detail_shows_the_shapes() -> None:
    def run(rank: int) -> str:
        dist.set_debug_level(LEVELS.DETAIL)
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(np.ones((10, 1 + rank)))
        return str(caught.value)

    for text in on_ranks(run):
        assert "[10,1]" in text
        assert "[10,2]" in text


@promise("With `DETAIL` different collectives on different ranks are an error that names both")
def test_detail_names_the_collectives() -> None:
    def run(rank: int) -> str:
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(np.ones(1)) if rank else dist.barrier()
        return str(caught.value)

    for text in on_ranks(run):
        assert "all_reduce" in text
        assert "barrier" in text


@promise("`set_debug_level` after `init_process_group` concerns groups to come", here="more",
         note="groups that exist as well")  # fmt: skip
def test_the_level_of_a_group_that_exists() -> None:
    def run(rank: int) -> None:
        dist.set_debug_level(LEVELS.OFF)
        group = dist.new_group()
        dist.barrier(group)
        dist.set_debug_level(LEVELS.DETAIL)
        with pytest.raises(dist.MismatchError):
            dist.all_reduce(np.ones(1 + rank), group=group)

    on_ranks(run, 2)


@promise("The log level and the debug level together give the effective level")
@pytest.mark.parametrize(
    ("log", "debug", "effective"),
    [
        ("ERROR", "DETAIL", 40),
        ("WARNING", "DETAIL", 30),
        ("INFO", "OFF", 20),
        ("INFO", "INFO", 10),
        ("INFO", "DETAIL", 5),
    ],
)
def test_effective_levels(
    monkeypatch: pytest.MonkeyPatch, log: str, debug: str, effective: int
) -> None:
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", log)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", debug)

    def run(rank: int) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    on_ranks(run, 1, is_initialized=False)
    assert logging.getLogger("distdbg").level == effective


@promise("With `INFO` the log tells which groups are made")
def test_the_log_of_groups(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    on_ranks(lambda _: dist.new_group(group_desc="dp"))
    assert any("[rank 1]" in line and "'dp'" in line for line in caplog.messages)


@promise("With `INFO` and `DETAIL` each op is in the log")
def test_the_log_of_ops(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    on_ranks(lambda _: dist.barrier())
    assert any("barrier" in line for line in caplog.messages)


@promise("`breakpoint(skip=n)` does nothing the first n times")
def test_breakpoint_skips() -> None:
    def run(rank: int) -> None:
        for _ in range(3):
            dist.breakpoint(skip=3)

    on_ranks(run)


@promise("`breakpoint` of a rank that does not exist is refused")
def test_breakpoint_of_no_rank() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="rank 5"):
            dist.breakpoint(rank=5)

    on_ranks(run)


PROGRAM = """
import distdbg as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = 40
dist.breakpoint()
print("x is", x)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.ranks
@promise("`breakpoint` opens a debugger on the given rank, 0 if none is given, until it continues")
def test_breakpoint() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="x = 42\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "(Pdb)" in done.stdout
    assert "x is 42" in done.stdout
