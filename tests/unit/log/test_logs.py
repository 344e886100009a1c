"""The log: who gets it, which rank a line is of, and each op as two lines at TRACE."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError
from distdbg.log import logs
from distdbg.log.log_levels import DebugLevel, LogLevel
from distdbg.runtime.backends.tracing import TracingEngine
from distdbg.runtime.process.world import World, use
from tests.support.store_ranks import run_store_ranks

VARIABLES = ("DISTDBG_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL", "DISTDBG_DEBUG", "TORCH_DISTRIBUTED_DEBUG")

PROGRAM = """
import logging, sys
import numpy as np, distdbg as dist
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(np.zeros(3, np.float32))
logging.getLogger("distdbg").warning("seen")
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger("distdbg")
    level, handlers = root.level, list(root.handlers)
    yield root
    root.setLevel(level)
    root.handlers[:] = handlers


def messages(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if part in r.getMessage()]


def run_program(folder: Path, **variables: str) -> list[str]:
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environ, "DISTDBG_RUN_DIR": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_without_a_variable_the_log_is_pythons(tmp_path: Path) -> None:
    assert run_program(tmp_path) == ["seen"]


def test_at_trace_each_op_is_two_lines_on_stderr(tmp_path: Path) -> None:
    lines = run_program(tmp_path, DISTDBG_LOG_LEVEL="info", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} [A-Z]+ ", line) for line in lines)
    texts = [line.split(" ", 1)[1] for line in lines]
    assert texts[0].startswith("INFO [rank 0] group 'world' created: ranks 0, group rank 0 of 1")
    name = "TRACE [rank 0] all_reduce on group 'world' (line 1)"
    assert texts[1] == f"{name} issued: into float32[3], op SUM"
    assert re.fullmatch(re.escape(name) + r" ended after \d+\.\d{3} ms", texts[2])
    assert texts[3:] == ["WARNING seen", "INFO [rank 0] group 'world' destroyed"]


def test_a_bad_value_of_torchs_variable_is_said_and_does_no_harm(tmp_path: Path) -> None:
    lines = run_program(tmp_path, TORCH_CPP_LOG_LEVEL="loud")
    assert len(lines) == 2
    assert "TORCH_CPP_LOG_LEVEL='loud' is not valid" in lines[0]


def test_a_bad_value_of_our_variable_is_an_error_at_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DISTDBG_LOG_LEVEL", "loud")
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    with use(World()), pytest.raises(ConfigError, match="DISTDBG_LOG_LEVEL='loud'"):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)


def test_a_handler_is_installed_where_there_is_none_and_once(
    tree: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.configure(None)
    assert tree.handlers == []
    monkeypatch.setenv("DISTDBG_LOG_LEVEL", "1")
    logs.configure(None)
    logs.configure(DebugLevel.DETAIL)
    assert len(tree.handlers) == 1
    assert tree.level == LogLevel.WARNING
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    logs.get_logger("check").error("told to %s", "whoever is stderr now")
    assert sys.stderr.getvalue().endswith("ERROR [rank ?] told to whoever is stderr now\n")


def test_the_programs_own_handler_is_enough(
    tree: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_LOG_LEVEL", "INFO")
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    logs.configure(None)
    assert tree.handlers == []
    assert tree.level == LogLevel.INFO


def test_ranks_that_are_threads_write_their_own_rank(caplog: pytest.LogCaptureFixture) -> None:
    def run(rank: int) -> None:
        group = dist.new_group([2, 1])
        if rank:
            dist.broadcast(np.zeros(2), src=2, group=group)
            dist.destroy_process_group(group)

    with caplog.at_level(LogLevel.TRACE, "distdbg"):
        run_store_ranks(run, 3)
    issued = sorted(messages(caplog, "issued"))
    assert issued == [
        f"[rank {rank}] broadcast on group '1' (line 1) issued: into float64[2], root 2"
        for rank in (1, 2)
    ]
    assert sorted(messages(caplog, "group '1' destroyed")) == [
        f"[rank {rank}] group '1' destroyed" for rank in (1, 2)
    ]
    (made,) = messages(caplog, "[rank 2] group '1' created")
    assert made.startswith("[rank 2] group '1' created: ranks 1-2, group rank 1 of 2, backend cpu")


def test_the_ops_of_living_groups_are_traced_from_a_change_of_level_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_LOG_LEVEL", "INFO")

    def run(rank: int) -> None:
        group = dist.group.WORLD
        assert group is not None
        plain = group.engine
        dist.all_reduce(np.zeros(1))
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        assert isinstance(group.engine, TracingEngine)
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        assert group.engine.inner is plain  # wrapped once
        work = dist.all_reduce(np.zeros(2), async_op=True)
        assert work is not None
        work.wait()
        work.wait()
        dist.set_debug_level(dist.DebugLevel.INFO)
        assert group.engine is plain
        dist.all_reduce(np.zeros(3))

    run_store_ranks(run, 1)
    assert messages(caplog, " issued") == [
        "[rank 0] all_reduce on group 'world' (line 1) issued: into float64[2], op SUM, async"
    ]
    assert len(messages(caplog, " ended after ")) == 1
    assert messages(caplog, "debug level") == [
        "[rank 0] the debug level is INFO now; it was DETAIL"
    ]


def test_failures_are_lines_too(caplog: pytest.LogCaptureFixture) -> None:
    def run(rank: int) -> None:
        with pytest.raises(dist.MismatchError):
            dist.all_reduce(np.zeros(1 + rank))
        work = dist.all_reduce(np.zeros(1 + rank), async_op=True)
        assert work is not None
        while not work.is_completed():
            pass
        with pytest.raises(dist.MismatchError):
            work.wait()

    with caplog.at_level(LogLevel.TRACE, "distdbg"):
        run_store_ranks(run, 2, backend="gloo")
    for rank in (0, 1):
        failed = messages(caplog, f"[rank {rank}] all_reduce on group 'world' (line ")
        assert len(failed) == 4  # twice issued, twice failed
        assert sum("differs between ranks" in line for line in failed) == 2
        assert len(messages(caplog, f"[rank {rank}] all_reduce #")) == 2  # at INFO, without TRACE


def test_messages_and_their_peers_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    def run(rank: int) -> None:
        if rank == 0:
            dist.send(np.zeros(2), 1, tag=5)
        else:
            dist.recv(np.zeros(2), tag=5)
        many = [np.zeros(1) for _ in range(2)]
        dist.all_to_all([np.zeros(1) for _ in range(2)], many)

    with caplog.at_level(LogLevel.TRACE, "distdbg"):
        run_store_ranks(run, 2)
    issued = messages(caplog, "issued: ")
    ends = {line.partition("issued: ")[2] for line in issued}
    assert "from float64[2], to rank 1, tag 5" in ends
    assert "into float64[2], from any rank, tag 5" in ends
    assert "from float64[1] float64[1], into float64[1] float64[1]" in ends
