"""What a program may choose for a group over NCCL, and what helps against NCCL's usual errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import OpTimeout
from distdbg.runtime.backends.nccl.failures import advice
from tests.unit.nccl.stand_in import Machine, of_rank

LIMIT_S = 60


@pytest.mark.parametrize(
    ("options", "priority"),
    [
        (None, 0),
        (dist.NcclOptions(), 0),
        (dist.NcclOptions(is_high_priority_stream=True), -1),
        (SimpleNamespace(is_high_priority_stream=True), -1),  # as torch's
    ],
)
def test_a_group_may_have_a_stream_that_goes_first(
    machine: Machine, options: Any, priority: int
) -> None:
    def program() -> None:
        pg = dist.new_group(backend="nccl", pg_options=options)
        dist.all_reduce(of_rank([1.0]), group=pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    # Streams of the program itself have numbers of 1000 and more.
    streams = [event.stream for event in machine.events.values() if event.stream.ptr < 1000]
    assert {stream.priority for stream in streams} == {priority}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_wait_may_block_the_host_until_the_op_has_ended(machine: Machine, is_async: bool) -> None:
    def program() -> None:
        options = dist.NcclOptions(is_blocking_wait=True)
        pg = dist.new_group(backend="nccl", pg_options=options)
        machine.hangs = True

        def step() -> None:
            work = dist.all_reduce(of_rank([1.0]), group=pg, async_op=is_async, timeout=0.05)
            if work is not None:
                work.wait()

        with pytest.raises(OpTimeout, match="all_reduce"):
            step()

    dist.run_threads(program, 1, timeout_s=LIMIT_S)


def test_init_process_group_takes_them_as_well(machine: Machine) -> None:
    store = dist.HashStore()

    def program() -> None:
        dist.destroy_process_group()
        options = dist.NcclOptions(is_high_priority_stream=True)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, pg_options=options)
        dist.all_reduce(of_rank(np.ones(2)))

    dist.run_threads(program, 1, timeout_s=LIMIT_S)
    assert -1 in {event.stream.priority for event in machine.events.values()}


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "backend='gloo'"),
        ("Mismatched NCCL version detected : rank 0 has 22703, rank 1 22106", "one version"),
        ("Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)", "--shm-size"),
        ("posix_fallocate failed: No space left on device", "--shm-size"),
        ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("socketStartConnect: Connect to 10.0.0.1<40203> failed : Connection refused", "IFNAME"),
        ("something that nobody has seen", "NCCL_DEBUG=INFO"),
    ],
)
def test_the_usual_errors_come_with_what_helps(words: str, helps: str) -> None:
    assert helps in advice(words)
