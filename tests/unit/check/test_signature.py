"""What of a call must be alike on all ranks, and what may differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from distdbg.check.signature import fingerprint, signature
from distdbg.ops.call import Call
from distdbg.ops.cuts import cut_blocks, is_input_cut, is_output_cut
from distdbg.ops.reduce_op import ReduceOp, make_premul_sum
from distdbg.runtime.api import calls
from distdbg.runtime.arrays.buffers import as_input


def facts(call: Call, size: int = 2) -> dict[str, Any]:
    inputs = [as_input(x) for x in call.inputs]
    outputs = [as_input(x) for x in call.outputs]
    in_cuts = cut_blocks(inputs, call.input_splits, size, is_input_cut(call.kind))
    out_cuts = cut_blocks(outputs, call.output_splits, size, is_output_cut(call.kind))
    return signature(call, inputs, outputs, in_cuts, out_cuts)


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def all_reduce(x: np.ndarray[Any, Any], op: ReduceOp = ReduceOp.SUM) -> dict[str, Any]:
    return facts(calls.all_reduce(x, op))


def all_gather(shapes: Sequence[tuple[int, ...]], rank: int = 0) -> dict[str, Any]:
    blocks = [zeros(*shape) for shape in shapes]
    return facts(calls.all_gather(len(shapes), rank, blocks, zeros(*shapes[rank])), len(shapes))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (zeros(4), zeros(5)),
        (zeros(4), zeros(2, 2)),
        (zeros(4), zeros(1, 4)),
        (zeros(0), zeros(0, 3)),
        (zeros(4, dtype="float16"), zeros(4, dtype="int16")),
        (zeros(4, dtype="uint8"), zeros(4, dtype="bool")),
        (zeros(4, dtype="complex64"), zeros(4, dtype="float64")),
    ],
)
def test_arrays_that_differ(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> None:
    assert fingerprint(all_reduce(one)) != fingerprint(all_reduce(other))


def test_no_dimensions_are_one_element() -> None:
    assert all_reduce(np.array(1.0)) == all_reduce(np.array([1.0]))


def test_a_transposed_view_is_an_array_of_its_shape() -> None:
    assert all_reduce(zeros(2, 3).T) == all_reduce(zeros(3, 2))


def test_premul_sum_is_no_sum_and_has_one_factor() -> None:
    half = all_reduce(zeros(4), make_premul_sum(0.5))
    assert half == all_reduce(zeros(4), make_premul_sum(0.5))
    assert half != all_reduce(zeros(4), make_premul_sum(2.0))
    assert half != all_reduce(zeros(4))
    assert (half["op"], half["factor"]) == ("PREMUL_SUM", "0.5")
    nan = all_reduce(zeros(4), make_premul_sum(float("nan")))
    assert nan == all_reduce(zeros(4), make_premul_sum(float("nan")))
    assert all_reduce(zeros(4), ReduceOp.AVG) != all_reduce(zeros(4))


def test_premul_sum_of_each_reduction_is_no_sum() -> None:
    op = make_premul_sum(0.5)
    for premul, plain in [
        (calls.reduce(2, 0, zeros(4), 0, op), calls.reduce(2, 0, zeros(4), 0, ReduceOp.SUM)),
        (
            calls.reduce_scatter_single(2, zeros(2), zeros(4), op, None, "x"),
            calls.reduce_scatter_single(2, zeros(2), zeros(4), ReduceOp.SUM, None, "x"),
        ),
        (
            calls.reduce_scatter(2, 0, zeros(2), [zeros(2), zeros(2)], op),
            calls.reduce_scatter(2, 0, zeros(2), [zeros(2), zeros(2)], ReduceOp.SUM),
        ),
    ]:
        assert facts(premul) != facts(plain)


def test_ranks_of_an_uneven_all_gather_have_arrays_of_their_own_shape() -> None:
    shapes = [(1, 2), (3,), (2, 2)]
    assert all_gather(shapes, 0) == all_gather(shapes, 1) == all_gather(shapes, 2)
    assert all_gather(shapes, 0) != all_gather([(1, 2), (4,), (2, 2)], 0)


def test_ranks_of_an_even_all_gather_have_arrays_of_one_shape() -> None:
    assert all_gather([(2, 2), (2, 2)], 0) != all_gather([(4,), (4,)], 1)
    assert all_gather([(2, 2), (2, 2)], 0) == all_gather([(2, 2), (2, 2)], 1)


def test_lists_and_arrays_of_all_gather_mix() -> None:
    for name in ("all_gather_single", "all_gather_into_tensor", "_all_gather_base"):
        for output in (zeros(4, 2), zeros(2, 2, 2), zeros(8)):
            call = calls.all_gather_single(2, 0, output, zeros(2, 2), None, name)
            assert facts(call) == all_gather([(2, 2), (2, 2)])


def test_lists_and_arrays_of_reduce_scatter_mix() -> None:
    blocks = calls.reduce_scatter(2, 0, zeros(2, 3), [zeros(2, 3), zeros(2, 3)], ReduceOp.SUM)
    for whole in (zeros(4, 3), zeros(2, 2, 3)):
        call = calls.reduce_scatter_single(2, zeros(2, 3), whole, ReduceOp.SUM, None, "x")
        assert facts(call) == facts(blocks)


def test_a_transposed_input_of_reduce_scatter_is_seen() -> None:
    made = [
        calls.reduce_scatter_single(2, zeros(4), whole, ReduceOp.SUM, None, "x")
        for whole in (zeros(2, 4), zeros(4, 2))
    ]
    assert facts(made[0]) != facts(made[1])


def test_the_root_of_gather_and_scatter_is_compared_with_the_others() -> None:
    lists = [zeros(3), zeros(3)]
    assert facts(calls.gather(2, 0, zeros(3), lists, 0)) == facts(
        calls.gather(2, 1, zeros(3), None, 0)
    )
    assert facts(calls.scatter(2, 0, zeros(3), lists, 0)) == facts(
        calls.scatter(2, 1, zeros(3), None, 0)
    )
    assert facts(calls.scatter(2, 0, zeros(3), lists, 0)) != facts(
        calls.scatter(2, 1, zeros(4), None, 0)
    )
    assert facts(calls.gather(2, 0, zeros(3), lists, 0)) != facts(
        calls.gather(2, 1, zeros(3), [zeros(3), zeros(3)], 1)
    )


def test_reduce_is_alike_on_the_root_and_off_it() -> None:
    assert facts(calls.reduce(2, 0, zeros(3), 0, ReduceOp.MAX)) == facts(
        calls.reduce(2, 1, zeros(3), 0, ReduceOp.MAX)
    )


def test_splits_of_all_to_all_may_differ_and_are_not_kept() -> None:
    uneven = calls.all_to_all_single(2, 0, zeros(5), zeros(4), [1, 4], [1, 3])
    even = calls.all_to_all_single(2, 0, zeros(4), zeros(4), None, None)
    assert facts(uneven) == facts(even)
    assert uneven.extra < 0 == even.extra
