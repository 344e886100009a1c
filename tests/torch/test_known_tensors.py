"""Calls on torch's tensors that native code carries out alone (native/bindings/known_calls.hpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distdbg as dist
from tests.ranks.known_calls import SIZE, hits, is_known, run

torch = pytest.importorskip("torch")


def reduce(x: Any) -> None:
    dist.all_reduce(x)


def warm_up() -> None:
    for _ in range(4):
        reduce(torch.ones(3))
    assert is_known(lambda: reduce(torch.ones(3)))


def test_calls_on_tensors_are_known() -> None:
    def program(rank: int) -> None:
        warm_up()
        x, y = torch.arange(4.0) + rank, torch.zeros(4)
        results = []
        for _ in range(3):
            dist.all_to_all_single(y, x)
            dist.broadcast(x, 1)
            z = torch.zeros(4 * SIZE)
            dist.all_gather_into_tensor(z, x)
            results.append((y.tolist(), x.tolist(), z.tolist()))
        assert hits() >= 3 + 1
        assert results[1] == results[2]
        assert results[2][2] == [1.0, 2.0, 3.0, 4.0] * SIZE
        before = hits()
        dist.all_to_all_single(y, x)
        assert hits() == before + 1
        work = dist.all_gather_into_tensor(z, x, async_op=True)
        assert hits() == before + 2
        assert work is not None
        work.wait()
        assert z.tolist() == results[2][2]
        [result] = work.result()
        assert result is z

    run(program)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(3)),
        lambda: torch.ones(3, dtype=torch.bfloat16),
        lambda: torch.ones(6)[::2],
        lambda: torch.ones(3, dtype=torch.complex64).conj(),
    ],
    ids=["gradient", "parameter", "bfloat16", "strided", "conjugated"],
)
def test_other_tensors_go_the_way_they_went(make: Callable[[], Any]) -> None:
    def program(rank: int) -> None:
        warm_up()
        for _ in range(3):
            x = make()
            assert not is_known(lambda x=x: reduce(x))  # type: ignore[misc]
            assert x.detach().to(torch.complex64).real.tolist() == [SIZE] * 3
        assert is_known(lambda: reduce(torch.ones(3)))

    run(program)


def profile(rank: int) -> list[str]:
    warm_up()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert not is_known(lambda: reduce(torch.ones(3)))
    assert is_known(lambda: reduce(torch.ones(3)))
    return [event.name for event in profiler.events()]


def test_a_profiler_sees_known_calls() -> None:
    assert any("all_reduce" in name for name in run(profile, 1)[0])
