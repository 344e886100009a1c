"""A rank that forks: its record stays its own, whatever the child does before it ends."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current


def set_level() -> None:
    dist.set_debug_level(dist.DebugLevel.OFF)


def abort() -> None:
    assert dist.group.WORLD is not None
    dist.group.WORLD.abort()


def shut_down() -> None:
    assert dist.group.WORLD is not None
    dist.group.WORLD.shutdown()


def mark() -> None:
    dist.mark("in the child", 1)
    with dist.span("in the child"), dist.record_comm("in the child"):
        dist.barrier()


def end() -> None:
    sys.exit(0)


def fail() -> None:
    raise ValueError("in the child")


ACTS: dict[str, Callable[[], object]] = {
    "level": set_level,
    "abort": abort,
    "shut down": shut_down,
    "destroy": dist.destroy_process_group,
    "mark": mark,
    "exit": end,
    "raise": fail,
}
REFUSED = {"level", "abort", "mark"}


def child(act: str) -> str:
    """Run in a forked child: what became of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        outcome = b"done"
        try:
            ACTS[act]()
        except UsageError as error:
            outcome = b"refused" if "parent process" in str(error) else repr(error).encode()
        except BaseException as error:
            outcome = type(error).__name__.encode()
        os.write(writing, outcome)
        os.close(writing)
        if act in ("exit", "raise"):
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until it exits
            with suppress(BaseException):
                atexit._run_exitfuncs()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


def record_of(rank: int) -> dict[str, Any]:
    folder = current().run_folder
    assert folder is not None
    return asdict(read_record(Path(folder) / f"rank{rank:05}.ddr"))


def fork_and_compare(act: str) -> list[object]:
    dist.init_process_group()
    x = np.ones(3)
    dist.all_reduce(x)
    rank = dist.get_rank()
    before = record_of(rank)
    said = child(act)
    changed = [name for name, value in record_of(rank).items() if value != before[name]]
    dist.all_reduce(x)
    dist.destroy_process_group()
    return [said, changed, float(x[0])]


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_a_forked_child_leaves_the_record_alone(act: str, ranks: Callable[..., list[Any]]) -> None:
    said = {"exit": "SystemExit", "raise": "ValueError"}.get(
        act, "refused" if act in REFUSED else "done"
    )
    assert ranks(fork_and_compare, 2, act=act) == [[said, [], 4.0]] * 2
