"""assert_same among ranks: what is the same is left alone, what differs is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DivergedError


def run(program: Callable[[int], Any], size: int = 2) -> list[Any]:
    return dist.run_threads(lambda: program(dist.get_rank()), size, timeout_s=120.0)


def test_what_is_the_same_is_left_alone() -> None:
    def program(rank: int) -> None:
        dist.assert_same(np.arange(10.0))
        dist.assert_same({"a": [np.ones(3), 5], "b": {"c": np.zeros((2, 2), np.int8)}, "d": None})
        dist.assert_same([])
        dist.assert_same(np.arange(12).reshape(3, 4).T)

    run(program, 3)


def differing(x: Callable[[int], Any], size: int = 3, **more: Any) -> DivergedError:
    def program(rank: int) -> DivergedError:
        with pytest.raises(DivergedError) as caught:
            dist.assert_same(x(rank), **more)
        dist.barrier()
        return caught.value

    errors = run(program, size)
    assert len({str(error) for error in errors}) == 1
    return errors[0]


@pytest.mark.parametrize("count", [5, 1023, 200_000])
def test_the_first_element_that_differs_is_named_with_its_values(count: int) -> None:
    def model(rank: int) -> dict[str, Any]:
        weight = np.zeros(count, np.float32)
        if rank == 1:
            weight[count - 2 :] = 7
        return {"bias": np.ones(3), "weight": weight, "z": np.full(2, rank)}

    error = differing(model, what="model")
    assert (error.key, error.index, error.ranks) == ("weight", count - 2, [1])
    assert error.values == ["0.0", "7.0", "0.0"]
    lines = str(error).splitlines()
    assert lines[:3] == [
        f"assert_same on group 'world': model 'weight' from element {count - 2} on differs "
        "on rank 1 from the other ranks'",
        "  0.0 on ranks 0,2",
        "  7.0 on rank 1",
    ]
    assert lines[3].startswith("  ranks 0-2 called it at test_assert_same.py:")
    assert lines[4:] == ["  the group is still usable"]


def test_other_names_shapes_dtypes_and_values_are_told() -> None:
    error = differing(lambda rank: {"a": 1} if rank else {"b": 1})
    assert (error.key, error.ranks, error.values) == ("b", [0], ["int", "nothing", "nothing"])
    error = differing(lambda rank: np.ones(3 + rank // 2))
    assert (error.key, error.ranks) == ("", [2])
    assert error.values == ["float64[3]", "float64[3]", "float64[4]"]
    error = differing(lambda rank: [np.ones(3), np.ones(3, np.float32 if rank else np.int32)])
    assert (error.key, error.ranks) == ("[1]", [0])
    error = differing(lambda rank: {"step": 40 + rank}, size=2)
    assert (error.key, error.ranks, error.values) == ("step", [0, 1], ["40", "41"])
    error = differing(lambda rank: {"a": 1, "b": 2} if rank else {"b": 2, "a": 1})
    assert "differs on rank 0" in error.what
    assert "in its order" in error.what


def test_assert_same_takes_what_has_a_state_dict_and_a_group() -> None:
    class Model:
        def __init__(self, value: float) -> None:
            self.value = value

        def state_dict(self) -> dict[str, Any]:
            return {"layer.weight": np.array([1.0, self.value])}

    def program(rank: int) -> None:
        pair = dist.new_group([0, 2])
        if rank == 1:
            return
        dist.assert_same(Model(3.0), group=pair)
        with pytest.raises(DivergedError) as caught:
            dist.assert_same(Model(rank), group=pair)
        assert (caught.value.key, caught.value.index) == ("layer.weight", 1)
        assert caught.value.ranks == [0, 2]

    run(program, 3)
