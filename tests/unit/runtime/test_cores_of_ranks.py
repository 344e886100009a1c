"""How many cores a rank counts, where a launcher has bound each to one, or nobody has bound any."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from distdbg.runtime.backends.waiting import cores_of_ranks
from distdbg.runtime.tuning.machine_cpus import machine_cpus

CPUS = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="this machine has one core")


@pytest.fixture
def bound_to_first() -> Iterator[None]:
    os.sched_setaffinity(0, CPUS[:1])
    machine_cpus.cache_clear()
    try:
        yield
    finally:
        os.sched_setaffinity(0, CPUS)
        machine_cpus.cache_clear()


@pytest.fixture
def bound_to_second(bound_to_first: None) -> Iterator[int]:
    """The pid of a process on another core."""
    code = (
        f"import os; os.sched_setaffinity(0, {{{CPUS[-1]}}}); print('bound', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield other.pid
        other.kill()


@needs_two
def test_ranks_that_are_bound_to_a_core_each_share_none(bound_to_second: int) -> None:
    assert cores_of_ranks([]) == 1
    assert cores_of_ranks([bound_to_second]) == 2


@needs_two
def test_ranks_that_are_bound_to_one_core_share_it_also_beside_wider_ones(
    bound_to_second: int,
) -> None:
    os.sched_setaffinity(0, CPUS[-1:])
    assert cores_of_ranks([bound_to_second]) == 1
    with subprocess.Popen(["sleep", "60"]) as wider:
        os.sched_setaffinity(wider.pid, CPUS)
        assert cores_of_ranks([bound_to_second, wider.pid]) == 1
        os.sched_setaffinity(0, CPUS[:1])
        assert cores_of_ranks([bound_to_second]) == 2
        wider.kill()


def test_a_rank_counts_itself_once(bound_to_first: None) -> None:
    assert cores_of_ranks([os.getpid(), os.getpid()]) == 1


def test_ranks_that_nobody_has_bound_share_all() -> None:
    assert cores_of_ranks([os.getpid()]) == len(CPUS)


def test_a_process_that_is_gone_counts_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert cores_of_ranks([gone.pid]) == len(CPUS)


@needs_two
def test_a_bound_rank_knows_the_cpus_of_the_machine_and_keeps_its_own(bound_to_first: None) -> None:
    assert set(CPUS) <= machine_cpus()
    assert os.sched_getaffinity(0) == set(CPUS[:1])
    assert not [each for each in threading.enumerate() if "widen" in each.name]
