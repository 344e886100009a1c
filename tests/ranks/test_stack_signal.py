"""The signal that lets an observer take a rank's stacks: there while the rank has groups, and no longer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import distdbg as dist
from distdbg.record.stack_file import STACK_SIGNAL, stacks_name
from distdbg.runtime.process.world import current


def is_caught() -> bool:
    with open("/proc/self/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
    return bool(mask >> (STACK_SIGNAL - 1) & 1)


def lives_and_leaves() -> list[object]:
    seen: list[object] = [is_caught()]
    for _ in range(2):
        dist.init_process_group()
        folder = current().run_folder
        assert folder is not None
        path = folder / stacks_name(dist.get_rank())
        seen += [is_caught(), path.stat().st_mode & 0o777]
        os.kill(os.getpid(), STACK_SIGNAL)
        seen.append("lives_and_leaves" in path.read_text())
        dist.destroy_process_group()
        seen += [is_caught(), path.exists()]
    return seen


def test_it_is_there_from_init_to_destroy(ranks: Callable[..., Any]) -> None:
    once = [True, 0o600, True, False, False]
    assert ranks(lives_and_leaves, 2) == [[False, *once, *once]] * 2


def has_its_own() -> list[object]:
    heard: list[int] = []
    signal.signal(STACK_SIGNAL, lambda number, _: heard.append(number))
    dist.init_process_group()
    folder = current().run_folder
    assert folder is not None
    os.kill(os.getpid(), STACK_SIGNAL)
    is_there = (folder / stacks_name(dist.get_rank())).exists()
    dist.destroy_process_group()
    os.kill(os.getpid(), STACK_SIGNAL)
    return [len(heard), is_there]


def test_a_program_keeps_a_handler_of_its_own(ranks: Callable[..., Any]) -> None:
    assert ranks(has_its_own, 1) == [[2, False]]


def in_threads() -> list[bool]:
    def look() -> bool:
        dist.barrier()
        is_there = is_caught()
        dist.barrier()
        dist.destroy_process_group()
        return is_there

    found: list[bool] = dist.run_threads(look, 3)
    return [*found, is_caught()]


def test_one_of_several_threads_installs_it_for_all(ranks: Callable[..., Any]) -> None:
    assert ranks(in_threads, 1) == [[True, True, True, False]]
