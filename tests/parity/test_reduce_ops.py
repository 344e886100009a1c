"""ReduceOp: the reductions, and which types they take."""

from __future__ import annotations

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise

OPS = dist.ReduceOp


def reduced(op: dist.ReduceOp, *values: float, dtype: str = "int64") -> float:
    """What a reduction of one value of each rank gives, the same on all."""

    def run(rank: int) -> float:
        x = np.array([values[rank]], dtype)
        dist.all_reduce(x, op)
        return x[0].item()  # type: ignore[no-any-return]

    results = on_ranks(run, len(values))
    assert len(set(results)) == 1
    return results[0]


@promise("`SUM` adds; it is the default")
def test_sum() -> None:
    assert reduced(OPS.SUM, 1, 2, 4) == 7


@promise("`PRODUCT` multiplies")
def test_product() -> None:
    assert reduced(OPS.PRODUCT, 2, 3, 4) == 24


@promise("`MIN` and `MAX` take the smallest and the largest value")
def test_min_and_max() -> None:
    assert reduced(OPS.MIN, 2, 1, 4) == 1
    assert reduced(OPS.MAX, 2, 1, 4) == 4


@promise("`BAND`, `BOR` and `BXOR` work bit by bit on integers")
def test_bits() -> None:
    assert reduced(OPS.BAND, 6, 3) == 2
    assert reduced(OPS.BOR, 6, 3) == 7
    assert reduced(OPS.BXOR, 6, 3) == 5


@promise("`BAND`, `BOR` and `BXOR` of floats are refused")
@pytest.mark.parametrize("op", [OPS.BAND, OPS.BOR, OPS.BXOR])
def test_bits_of_floats(op: dist.ReduceOp) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"B(AND|X?OR)"):
        reduced(op, 1.0, 2.0, dtype="float32")


@promise("`AVG` divides the sum by the number of ranks", here="more", note="torch's needs NCCL")
def test_avg() -> None:
    assert reduced(OPS.AVG, 1.0, 2.0, dtype="float64") == 1.5


@promise(
    "`PREMUL_SUM` multiplies each input by a factor before the sum",
    here="more",
    note="torch's needs NCCL",
)
def test_premul_sum() -> None:
    assert reduced(dist.make_premul_sum(0.5), 2.0, 4.0, dtype="float64") == 3.0


@promise("`MIN`, `MAX` and `PRODUCT` of complex numbers are refused")
@pytest.mark.parametrize("op", [OPS.MIN, OPS.MAX, OPS.PRODUCT])
def test_complex_numbers(op: dist.ReduceOp) -> None:
    with pytest.raises(ValueError, match="complex64"):
        reduced(op, 1, 2, dtype="complex64")


@promise("`supports_complex` tells which reductions take complex numbers")
def test_supports_complex() -> None:
    assert dist.supports_complex(OPS.SUM)
    assert not dist.supports_complex(OPS.PRODUCT)


@promise("The values of `ReduceOp` are attributes: `ReduceOp.SUM`")
def test_attributes() -> None:
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    assert all(hasattr(OPS, name) for name in names)


@promise("`reduce_op` is the deprecated name of `ReduceOp`, and warns")
def test_the_old_name() -> None:
    with pytest.warns(FutureWarning, match="ReduceOp"):
        assert dist.reduce_op.SUM == OPS.SUM


@promise("Anything but a `ReduceOp` is refused")
def test_no_op() -> None:
    def run(rank: int) -> None:
        with pytest.raises((ValueError, TypeError), match="op"):
            dist.all_reduce(np.ones(1), "sum")  # type: ignore[arg-type]

    on_ranks(run)


@promise("The op of a reduction is the same on all ranks", here="stricter", note="else an error")
def test_different_ops() -> None:
    def run(rank: int) -> None:
        with pytest.raises(dist.MismatchError, match="MAX"):
            dist.all_reduce(np.ones(1), OPS.MAX if rank else OPS.SUM)

    on_ranks(run)
