"""run_ranks itself: a pass, an exception, a hang, a signal, and nothing left afterwards."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distdbg.testing import RanksFailed
from distdbg.testing.fork_server import ForkedRank, fork_servers


def report(factor: int) -> dict[str, Any]:
    return {"rank": int(os.environ["RANK"]) * factor, "size": int(os.environ["WORLD_SIZE"])}


def one_raises() -> None:
    if os.environ["RANK"] == "1":
        raise RuntimeError("rank one is unhappy")


def one_hangs() -> None:
    if os.environ["RANK"] == "1":
        threading.Event().wait()


def one_is_killed() -> int:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def leaves_a_child(pid_file: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(pid_file).write_text(str(child.pid))


def ends_soon(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        ended = selector.select(timeout=120.0)
    os.close(descriptor)
    return bool(ended)


def test_results_come_back_by_rank(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(report, 2, factor=3) == [{"rank": 0, "size": 2}, {"rank": 3, "size": 2}]


def test_a_rank_that_raises_is_shown_with_its_output(ranks: Callable[..., list[Any]]) -> None:
    with pytest.raises(RanksFailed, match="rank 1 ended with exit code 1") as failed:
        ranks(one_raises, 2)
    assert "RuntimeError: rank one is unhappy" in str(failed.value)
    assert "rank 0" not in str(failed.value)


@pytest.mark.slow
def test_a_rank_that_hangs_shows_its_stack_and_is_killed(ranks: Callable[..., list[Any]]) -> None:
    with pytest.raises(RanksFailed, match="rank 1 hung and was killed") as failed:
        ranks(one_hangs, 2, timeout=3.0)  # to begin in
    assert "in one_hangs" in str(failed.value)
    assert failed.value.results[1].exit_code == -signal.SIGKILL


def test_a_killed_rank_is_accepted_where_expected(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(one_is_killed, 2, expect_exit={1: -signal.SIGKILL}) == [7, None]


def test_a_rank_that_ends_well_though_it_should_die_fails(ranks: Callable[..., list[Any]]) -> None:
    with pytest.raises(RanksFailed, match="rank 0 ended with exit code 0, expected SIGKILL"):
        ranks(report, 1, factor=1, expect_exit={0: -signal.SIGKILL})


def test_processes_started_by_a_rank_do_not_outlive_it(
    ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    ranks(leaves_a_child, 1, pid_file=str(tmp_path / "pid"))
    assert ends_soon(int((tmp_path / "pid").read_text()))


def test_a_nested_function_is_refused(ranks: Callable[..., list[Any]]) -> None:
    with pytest.raises(ValueError, match="module level"):
        ranks(lambda: None, 1)


def test_what_a_rank_started_ends_also_when_the_run_is_broken_off(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    kwargs = json.dumps({"pid_file": str(pid_file)})
    order = ForkedRank(
        env=dict(os.environ),
        output=tmp_path / "out",
        arguments=[__file__, "leaves_a_child", kwargs, str(tmp_path / "result")],
    )
    with suppress(KeyboardInterrupt), fork_servers.take() as server:
        server.start([order])
        assert server.wait_for_one(30.0) is not None, (tmp_path / "out").read_text()
        raise KeyboardInterrupt
    assert ends_soon(int(pid_file.read_text()))
