"""Dtype: the same table in Python, NumPy and torch's names."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distdbg.ops.dtypes import CARRIERS, FROM_NUMPY, Dtype, from_numpy, from_torch


@pytest.mark.parametrize("dtype", Dtype)
def test_dtype_survives_the_way_through_numpy(dtype: Dtype) -> None:
    assert from_numpy(dtype.to_numpy()) is dtype
    assert dtype.to_numpy().itemsize == dtype.itemsize
    assert dtype.to_numpy().name == dtype.label


@pytest.mark.parametrize("dtype", Dtype)
def test_dtype_is_found_by_the_name_of_a_torch_dtype(dtype: Dtype) -> None:
    class TorchDtype:
        def __repr__(self) -> str:
            return f"torch.{dtype.label}"

    assert from_torch(TorchDtype()) is dtype


def test_all_names_of_c_for_one_type_are_one_dtype() -> None:
    assert from_numpy(np.dtype("q")) is Dtype.int64
    assert from_numpy(np.dtype("l")) is Dtype.int64
    assert from_numpy(np.dtype("Q")) is Dtype.uint64
    assert from_numpy(np.dtype(ml_dtypes.bfloat16)) is Dtype.bfloat16


@pytest.mark.parametrize("name", [">f4", "M8[s]", "O", "U3", "S3", "V4", "g", "i4,f4"])
def test_other_numpy_dtypes_are_unknown(name: str) -> None:
    assert from_numpy(np.dtype(name)) is None


def test_other_torch_dtypes_are_unknown() -> None:
    assert from_torch("torch.qint8") is None
    assert from_torch("torch.bool_") is None


def test_every_dtype_is_of_one_family() -> None:
    for dtype in Dtype:
        families = [dtype.is_integral, dtype.is_floating, dtype.is_complex, dtype is Dtype.bool_]
        assert families.count(True) == 1, dtype


def test_carriers_are_for_exactly_what_the_buffer_protocol_refuses() -> None:
    refused = set()
    for numpy_dtype, dtype in FROM_NUMPY.items():
        try:
            np.zeros(1, numpy_dtype).data.release()
        except (ValueError, BufferError):
            refused.add(dtype)
    assert refused == set(CARRIERS)
    assert all(carrier.itemsize == dtype.itemsize for dtype, carrier in CARRIERS.items())
