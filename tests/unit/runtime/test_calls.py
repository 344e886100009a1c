"""What one rank can see alone is refused before anything is sent, with the facts in the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distdbg.errors import UsageError
from distdbg.ops.call import Call
from distdbg.ops.reduce_op import ReduceOp, make_premul_sum
from distdbg.runtime.api import arguments, calls

SUM = ReduceOp.SUM


def f(count: int) -> Any:
    return np.zeros(count, np.float32)


def i(count: int) -> Any:
    return np.zeros(count, np.int32)


base = f(8)

WRONG: dict[str, tuple[Callable[[], Call], str]] = {
    "root outside": (lambda: calls.broadcast(2, f(1), 2), "group rank 2"),
    "list too short": (lambda: calls.all_gather(3, 0, [f(1)], f(1)), "has 1 arrays, expected 3"),
    "no list": (lambda: calls.all_gather(1, 0, f(1), f(1)), "must be a list of 1 arrays"),
    "list dtype": (lambda: calls.all_gather(1, 0, [i(1)], f(1)), "int32 and float32"),
    "block size": (
        lambda: calls.all_gather(2, 1, [f(2), f(3)], f(2)),
        r"tensor_list\[1\] has 3 elements, tensor of rank 1 has 2",
    ),
    "blocks share memory": (
        lambda: calls.all_gather(2, 0, [base[:2], base[1:3]], f(2)),
        "share memory",
    ),
    "flat size": (
        lambda: calls.all_gather_single(2, 0, f(3), f(2), None, "all_gather_into_tensor"),
        "all_gather_into_tensor: output_tensor has 3 elements, expected 4",
    ),
    "flat dtype": (lambda: calls.all_gather_single(1, 0, i(1), f(1), None, "x"), "one dtype"),
    "gather_list missing": (lambda: calls.gather(2, 0, f(1), None, 0), "missing"),
    "gather_list on another": (lambda: calls.gather(2, 1, f(1), [f(1), f(1)], 0), "the root is 0"),
    "gather_list an array": (
        lambda: calls.gather(2, 1, f(1), np.zeros((2, 1)), 0),
        "the root is 0",
    ),
    "scatter_list missing": (lambda: calls.scatter(2, 0, f(1), None, 0), "missing"),
    "scatter_list on another": (lambda: calls.scatter(2, 1, f(1), [f(1)], 0), "the root is 0"),
    "scatter_list an array": (
        lambda: calls.scatter(2, 1, f(1), np.zeros((2, 1)), 0),
        "the root is 0",
    ),
    "scatter sizes": (
        lambda: calls.scatter(2, 0, f(1), [f(1), f(2)], 0),
        r"scatter_list\[1\] has 2 elements, tensor has 1",
    ),
    "reduce_scatter sizes": (
        lambda: calls.reduce_scatter(2, 1, f(1), [f(1), f(2)], SUM),
        r"input_list\[1\] has 2 elements, output of rank 1 has 1",
    ),
    "reduce_scatter flat": (
        lambda: calls.reduce_scatter_single(2, f(2), f(3), SUM, None, "reduce_scatter_tensor"),
        "input has 3 elements, expected 4",
    ),
    "all_to_all dtypes": (
        lambda: calls.all_to_all(2, 0, [f(1), f(1)], [f(1), i(1)]),
        "float32 and int32",
    ),
    "all_to_all own block": (
        lambda: calls.all_to_all(2, 1, [f(1), f(2)], [f(1), f(3)]),
        "rank 1 to itself has 3 elements",
    ),
    "splits length": (
        lambda: calls.all_to_all_single(2, 0, f(4), f(4), None, [4]),
        "input_split_sizes has 1 entries, expected 2",
    ),
    "splits sum": (
        lambda: calls.all_to_all_single(2, 0, f(4), f(4), [1, 2], None),
        "output_split_sizes sum up to 3, the first dimension of output is 4",
    ),
    "negative split": (
        lambda: calls.all_to_all_single(2, 0, f(4), f(4), [5, -1], None),
        "output_split_sizes has -1, and no split is below 0",
    ),
    "even split impossible": (
        lambda: calls.all_to_all_single(2, 0, f(3), f(3), None, None),
        "3, is not a multiple",
    ),
    "own split": (
        lambda: calls.all_to_all_single(2, 0, f(4), f(4), [1, 3], [2, 2]),
        "sends 2 rows to itself but expects 1",
    ),
    "row sizes": (
        lambda: calls.all_to_all_single(2, 0, f(4).reshape(2, 2), f(6).reshape(2, 3), None, None),
        "a row of input has 3 elements, a row of output 2",
    ),
    "not an array": (lambda: calls.all_gather(1, 0, [None], f(1)), "not an array"),
    "coalesced dtypes": (lambda: arguments.check_one_dtype("x", [f(1), i(1)]), "one dtype"),  # type: ignore[dict-item,return-value]
    "table width": (lambda: arguments.check_table("x", [[f(1)], []], 2, 1), "has 0 arrays"),  # type: ignore[dict-item,return-value]
    "max of complex": (
        lambda: calls.all_reduce(np.zeros(1, complex), ReduceOp.MAX),
        "MAX is not defined for complex128",
    ),
    "no reduce op": (
        lambda: calls.reduce_scatter_single(1, f(1), f(1), "sum", None, "x"),  # type: ignore[arg-type]
        "got 'sum'",
    ),
    "premul of integers": (
        lambda: calls.all_reduce(i(1), make_premul_sum(2.0)),
        "PREMUL_SUM is not defined for int32",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(UsageError, match=message) as caught:
        make()
    assert len(str(caught.value).splitlines()[0]) <= 130


def test_an_input_is_copied_only_where_an_output_overlaps_it() -> None:
    x = f(6)
    assert calls.all_gather_single(3, 1, x, x[2:4], None, "x").inputs[0].base is x
    assert calls.all_gather_single(3, 0, x, x[2:4], None, "x").inputs[0].base is None
    blocks = [x[0:2], x[2:4], x[4:6]]
    assert calls.all_gather(3, 2, blocks, x[4:6]).inputs[0].base is x
    assert calls.all_gather(3, 0, blocks, x[4:6]).inputs[0].base is None
    assert calls.gather(3, 0, x[0:2], blocks, 0).inputs[0].base is x
    assert calls.scatter(3, 0, x[2:4], blocks, 0).inputs[1].base is None
    assert calls.scatter(3, 0, f(2), blocks, 0).inputs[1].base is x
    assert calls.reduce_scatter_single(3, x[0:2], x, SUM, None, "x").inputs[0] is not x
    assert calls.all_to_all_single(3, 0, x, x, None, None).inputs[0] is not x
    y = f(6)
    assert calls.all_to_all_single(3, 0, y, x, None, None).inputs[0] is x


def test_ops_in_place_give_the_engine_one_tuple() -> None:
    call = calls.all_reduce(f(1), SUM)
    assert call.inputs is call.outputs
    call = calls.broadcast(2, f(1), 0)
    assert call.inputs is call.outputs
    scaled = calls.all_reduce(np.ones(1), make_premul_sum(0.25))
    assert scaled.inputs[0][0] == 0.25
    assert scaled.outputs[0][0] == 1.0
    assert scaled.op == SUM


def test_even_splits_are_left_to_the_engine() -> None:
    assert calls.all_to_all_single(2, 0, f(4), f(4), None, None).input_splits is None
    assert calls.all_to_all_single(2, 0, f(4), f(4), [], []).input_splits is None
    call = calls.all_to_all_single(2, 0, f(4), f(6), None, [2, 4])
    assert call.input_splits == [2, 4]
    assert call.output_splits == [2, 2]
