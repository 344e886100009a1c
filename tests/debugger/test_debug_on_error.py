"""DISTDBG_DEBUG_ON_ERROR among real ranks; the debugger is a function of the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.debugger import session
from distdbg.debugger.session import StopOutcome
from distdbg.errors import RankLeft

Ranks = Callable[..., list[Any]]
ON = {"DISTDBG_DEBUG_ON_ERROR": "1"}


def keep_in(folder: str, rank: int | None = None) -> None:
    """Stops write why, and what the others have seen of this rank until then."""

    def stop(why: str, *, error: BaseException | None = None, **_: object) -> StopOutcome:
        number = dist.get_rank() if rank is None else rank
        left = Path(folder, "seen").exists()
        with open(Path(folder, f"rank{number}"), "a") as file:
            file.write(f"{why}{' too late' if left else ''}\n")
        time.sleep(0.1)  # long enough for the others to notice, if there were something to notice
        return StopOutcome.CONTINUED

    session.stop_here = stop


def kept_of(folder: Path, size: int) -> list[list[str]]:
    files = [folder / f"rank{rank}" for rank in range(size)]
    return [file.read_text().splitlines() if file.exists() else [] for file in files]


def fails(folder: str, how: str) -> None:
    dist.init_process_group()
    keep_in(folder)
    rank = dist.get_rank()
    if rank == 0:
        try:
            dist.barrier()
        except RankLeft:
            Path(folder, "seen").touch()
            raise

    def program() -> None:
        raise ValueError("no data")

    match how:
        case "raise":
            program()
        case "record":
            try:
                dist.record(program)()
            except ValueError:
                raise SystemExit(1) from None
        case "destroy":
            try:
                program()
            finally:
                dist.destroy_process_group()
        case "exit":
            raise SystemExit(1)
        case "caught":
            try:
                program()
            except ValueError:
                raise SystemExit(1) from None


@pytest.mark.parametrize("how", ["raise", "record", "destroy"])
def test_a_rank_is_held_before_the_others_learn_that_it_leaves(
    ranks: Ranks, tmp_path: Path, how: str
) -> None:
    ranks(fails, 2, folder=str(tmp_path), how=how, env=ON, expect_exit={0: 1, 1: 1})
    assert kept_of(tmp_path, 2) == [[], ["at ValueError: no data"]]


@pytest.mark.parametrize("how", ["exit", "caught"])
def test_a_rank_that_ends_on_purpose_is_not_held(ranks: Ranks, tmp_path: Path, how: str) -> None:
    ranks(fails, 2, folder=str(tmp_path), how=how, env=ON, expect_exit={0: 1, 1: 1})
    assert kept_of(tmp_path, 2) == [[], []]


def test_nothing_is_held_unless_it_is_asked_for(ranks: Ranks, tmp_path: Path) -> None:
    ranks(fails, 2, folder=str(tmp_path), how="raise", expect_exit={0: 1, 1: 1})
    assert kept_of(tmp_path, 2) == [[], []]


def spawned(rank: int, folder: str) -> None:
    dist.init_process_group()
    keep_in(folder)
    if rank == 1:
        raise ValueError("no data")
    dist.barrier()


@pytest.mark.slow
def test_children_of_spawn_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_DEBUG_ON_ERROR", "1")
    with pytest.raises(Exception, match="no data"):
        dist.spawn(spawned, args=(str(tmp_path),), nprocs=2)
    assert kept_of(tmp_path, 2) == [[], ["at ValueError: no data"]]


def test_threads_as_ranks_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_DEBUG_ON_ERROR", "1")
    monkeypatch.setattr(session, "stop_here", session.stop_here)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    keep_in(str(tmp_path))

    def run() -> None:
        if dist.get_rank() == 1:
            raise ValueError("no data")
        dist.all_reduce(np.zeros(1))

    with pytest.raises(ValueError, match="no data"):
        dist.run_threads(run, 2)
    assert kept_of(tmp_path, 2) == [[], ["at ValueError: no data"]]
