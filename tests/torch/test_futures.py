"""The futures of our ops where torch expects its own."""

from __future__ import annotations

from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import MismatchError

torch: Any = pytest.importorskip("torch")


def test_a_future_is_one_of_torchs_in_each_place_that_takes_no_other() -> None:
    def program() -> tuple[list[float], list[float], int]:
        works = [dist.all_reduce(torch.full((2,), float(n)), async_op=True) for n in (1, 2)]
        futures = [work.get_future() for work in works]
        assert all(isinstance(future, torch.futures.Future) for future in futures)
        assert works[0].get_future() is futures[0]
        doubled = futures[0].then(lambda done: done.value()[0] * 2).wait()
        gathered = torch.futures.wait_all(futures)
        works[1].wait()
        assert futures[1].done()
        code = works[0].get_future_result()
        assert isinstance(code, torch.futures.Future)
        return doubled.tolist(), gathered[1][0].tolist(), code.wait()

    results = dist.run_threads(program, 2, timeout_s=60)
    assert results == [([4.0, 4.0], [4.0, 4.0], 0)] * 2


def test_the_error_of_an_op_is_raised_by_its_future() -> None:
    def program() -> None:
        work = dist.all_reduce(torch.zeros(1 + dist.get_rank()), async_op=True)
        future = work.get_future()
        with pytest.raises(MismatchError, match="all_reduce #1"):
            future.wait()
        assert future.done()

    dist.run_threads(program, 2, timeout_s=60)
