"""Arrays on a GPU, in ops of a group of the host, which copies them. The arrays are a stand-in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError, UsageError
from distdbg.testing.conformance.group import Api, run_checks
from tests.unit.nccl.stand_in import StandInArray


def gpu(values: Any) -> StandInArray:
    return StandInArray(np.array(values, np.float32))


def values(x: StandInArray) -> list[Any]:
    listed: list[Any] = x.host.tolist()
    return listed


def test_every_op_takes_arrays_on_a_gpu() -> None:
    def program() -> None:
        me, other = dist.get_rank(), 1 - dist.get_rank()
        x = gpu([1, me])
        dist.all_reduce(x)
        assert values(x) == [2, 1]
        work = dist.all_reduce(x, dist.make_premul_sum(0.5), async_op=True)
        assert work is not None
        work.wait()
        assert values(x) == [2, 1]
        x = gpu([me + 7])
        dist.broadcast(x, 1)
        assert values(x) == [8]
        dist.reduce(x, 0)
        assert values(x) == ([16] if me == 0 else [8])
        parts = [gpu([0]), gpu([0])]
        dist.all_gather(parts, gpu([me]))
        assert [values(part) for part in parts] == [[0], [1]]
        dist.gather(gpu([me]), parts if me == 0 else None)
        dist.scatter(x, [gpu([3]), gpu([4])] if me == 0 else None)
        assert values(x) == [3 + me]
        dist.reduce_scatter(x, [gpu([1]), gpu([2])])
        assert values(x) == [2 + 2 * me]
        rows = gpu([0, 0])
        dist.all_to_all_single(rows, gpu([10 + me, 20 + me]))
        assert values(rows) == ([10, 11] if me == 0 else [20, 21])
        flat = gpu(np.zeros(4))
        dist.all_gather_into_tensor(flat, rows)
        assert values(flat) == [10, 11, 20, 21]
        if me:
            assert dist.recv(x) == 0  # from any
            assert values(x) == [5]
        else:
            dist.send(gpu([5]), 1)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, gpu([me]), other), dist.P2POp(dist.irecv, x, other)]
        )
        for each in works:
            each.wait()
        assert values(x) == [other]

    dist.run_threads(program, 2, timeout_s=60)


def test_groups_of_the_host_do_all_that_groups_do_with_arrays_on_a_gpu() -> None:
    def program() -> dict[str, str]:
        api = Api(
            dist,
            array=lambda values, dtype: StandInArray(np.array(values, dtype)),
            values=lambda x: x.host.tolist(),
        )
        return run_checks(api)

    assert dist.run_threads(program, 3, timeout_s=60) == [{}] * 3


def test_one_rank_may_have_its_array_on_the_host_and_differences_are_told() -> None:
    def program() -> None:
        if dist.get_rank():
            host = np.array([1, 2], np.float32)
            dist.all_reduce(host)
            assert host.tolist() == [2, 4]
        else:
            x = gpu([1, 2])
            dist.all_reduce(x)
            assert values(x) == [2, 4]
        with pytest.raises(MismatchError):
            dist.all_reduce(gpu(np.zeros(1 + dist.get_rank())))
        with pytest.raises(UsageError, match="cannot be communicated"):
            dist.send(StandInArray(np.array(["text"])), 1 - dist.get_rank())

    dist.run_threads(program, 2, timeout_s=60)
