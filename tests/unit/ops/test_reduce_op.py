"""ReduceOp: torch's two forms, and which op is defined for which dtype."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import (
    RedOpType,
    ReduceOp,
    check_reduce,
    make_premul_sum,
    reduce_op,
    supports_complex,
)


@pytest.mark.parametrize("kind", RedOpType)
def test_both_forms_are_equal_and_interchangeable(kind: RedOpType) -> None:
    op = ReduceOp(kind)
    assert op == kind
    assert kind == op
    assert hash(op) == hash(kind)
    table: dict[object, int] = {op: 1}
    assert table[kind] == 1
    assert op.op is kind
    assert op.code == kind.code == int(kind)
    forms: list[object] = [op, kind]
    assert all(isinstance(form, ReduceOp) for form in forms)
    assert getattr(ReduceOp, kind.name) is kind
    assert getattr(ReduceOp.RedOpType, kind.name) is kind


def test_numbers_are_those_of_torch() -> None:
    names = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
    assert [kind.name for kind in sorted(RedOpType)] == names
    assert [int(kind) for kind in sorted(RedOpType)] == list(range(9))


def test_different_ops_are_different() -> None:
    assert ReduceOp(RedOpType.SUM) != ReduceOp.MAX
    assert ReduceOp(RedOpType.SUM) != ReduceOp(RedOpType.MAX)
    assert ReduceOp(RedOpType.SUM) != 0
    assert not isinstance(0, ReduceOp)


@pytest.mark.parametrize(
    "op", [ReduceOp.MIN, ReduceOp(RedOpType.MIN), make_premul_sum(0.5)], ids=repr
)
def test_ops_can_be_copied_and_pickled(op: ReduceOp) -> None:
    for twin in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert type(twin) is type(op)
        assert twin == op
        assert twin.factor == op.factor


def test_reduce_op_takes_nothing_but_a_kind() -> None:
    with pytest.raises(UsageError, match=r"takes a member of ReduceOp\.RedOpType"):
        ReduceOp(0)  # type: ignore[arg-type]  # the point of the test


def test_premul_sum_carries_a_number_or_an_array_of_one() -> None:
    assert make_premul_sum(3).factor == 3.0
    assert make_premul_sum(np.float32(0.5)).factor == 0.5  # type: ignore[arg-type]  # float() takes it
    assert make_premul_sum(0.5) == ReduceOp.PREMUL_SUM
    with pytest.raises(UsageError, match="one real number"):
        make_premul_sum("x")  # type: ignore[arg-type]  # the point of the test


def test_complex_is_for_sums_only() -> None:
    defined = [kind.name for kind in RedOpType if supports_complex(ReduceOp(kind))]
    assert defined == ["SUM", "AVG", "PREMUL_SUM"]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (ReduceOp.BAND, Dtype.float32),
        (ReduceOp.BXOR, Dtype.bfloat16),
        (ReduceOp.MAX, Dtype.complex64),
        (ReduceOp.PRODUCT, Dtype.complex128),
        (ReduceOp.AVG, Dtype.bool_),
        (make_premul_sum(2.0), Dtype.int32),
    ],
    ids=repr,
)
def test_undefined_combinations_are_usage_errors(op: ReduceOp, dtype: Dtype) -> None:
    with pytest.raises(UsageError) as caught:
        check_reduce(op, dtype)
    assert caught.value.what == f"reduce op {op.op.name} is not defined for {dtype.label}"
    assert "SUM" in caught.value.details[0]


def test_defined_combinations_pass() -> None:
    check_reduce(ReduceOp.SUM, Dtype.float32)
    check_reduce(ReduceOp(RedOpType.BAND), Dtype.bool_)
    check_reduce(make_premul_sum(2.0), Dtype.complex64)


def test_premul_sum_without_factor_says_how_to_get_one() -> None:
    with pytest.raises(UsageError, match="make_premul_sum"):
        check_reduce(ReduceOp.PREMUL_SUM, Dtype.float32)


@pytest.mark.parametrize("wrong", ["sum", 0, None])
def test_what_is_no_op_is_a_usage_error(wrong: object) -> None:
    with pytest.raises(UsageError, match="a reduce op is a ReduceOp"):
        check_reduce(wrong, Dtype.float32)  # type: ignore[arg-type]  # the point of the test


def test_the_old_spelling_works_and_warns() -> None:
    with pytest.warns(FutureWarning, match="use `ReduceOp`"):
        assert reduce_op.SUM == ReduceOp.SUM
    with pytest.warns(FutureWarning):
        assert reduce_op.__members__ == RedOpType.__members__
    with pytest.raises(AttributeError):
        _ = reduce_op.MEDIAN


def test_an_op_prints_its_name_as_in_torch() -> None:
    assert str(ReduceOp.SUM) == f"{ReduceOp.SUM}" == "RedOpType.SUM"
