"""PyTorch CPU tensors as memory; skipped where torch is not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from distdbg import _native
from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.arrays.buffers import as_input, as_output, copy_of, cut, empty_like, numel

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", Dtype, ids=str)
def test_tensors_of_every_dtype_are_used_in_place(dtype: Dtype) -> None:
    tensor = torch.zeros((2, 3), dtype=getattr(torch, dtype.label))
    for buffer in (as_input(tensor), as_output(tensor)):
        assert buffer.address == tensor.data_ptr()
        assert (buffer.dtype, buffer.shape, buffer.count) == (dtype, (2, 3), 6)
        assert buffer.array is tensor
        assert buffer.finish is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zero_size_and_zero_dim_tensors(dtype: Any) -> None:
    assert as_output(torch.zeros((), dtype=dtype)).shape == ()
    assert as_output(torch.zeros((3, 0), dtype=dtype)).shape == (3, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_that_require_grad_are_written_past_autograd(dtype: Any) -> None:
    leaf = torch.zeros(3, dtype=dtype, requires_grad=True)
    assert as_output(leaf).address == leaf.data_ptr()
    parameter = torch.nn.Parameter(torch.zeros(2, 2, dtype=dtype))
    buffer = as_output(parameter.T)
    assert buffer.finish is not None
    buffer.finish()
    assert parameter.grad_fn is None


def test_strided_tensors_are_written_back() -> None:
    tensor = torch.zeros(3, 4)
    window = tensor[:, 1::2]
    buffer = as_output(window)
    twos = torch.full((3, 2), 2.0)
    _native.fold(0, Dtype.float32, buffer, [as_input(twos)])
    assert buffer.finish is not None
    buffer.finish()
    assert tensor.tolist() == [[0, 2, 0, 2]] * 3


def test_conjugate_and_negative_views_are_resolved() -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    conjugate = values.conj()
    buffer = as_output(conjugate)
    result = np.zeros(2, np.complex64)
    _native.fold(0, Dtype.complex64, as_output(result), [buffer])
    assert result.tolist() == [1 - 2j, 3 + 4j]
    _native.fold(0, Dtype.complex64, buffer, [as_input(torch.tensor([5 + 5j, 6 + 6j]))])
    assert buffer.finish is not None
    buffer.finish()
    assert values.tolist() == [5 - 5j, 6 - 6j]
    negative = conjugate.imag
    assert negative.is_neg()
    imaginary = np.zeros(2, np.float32)
    _native.fold(0, Dtype.float32, as_output(imaginary), [as_input(negative)])
    assert imaginary.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.ones(2, 2).to_sparse(), "layout torch.sparse_coo"),
        (lambda: torch.ones(2, device="meta"), "on device meta"),
        (lambda: torch.zeros(2).to(torch.float8_e8m0fnu), "dtype torch.float8_e8m0fnu"),
    ],
    ids=["sparse", "meta", "dtype"],
)
def test_tensors_without_usable_memory_are_refused(make: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"^weight is a tensor .*{words}"):
        as_input(make(), "weight")


def test_expanded_tensors_can_be_read_but_not_written() -> None:
    tensor = torch.ones(1).expand(3)
    assert as_input(tensor).count == 3
    with pytest.raises(UsageError, match="share one place in memory"):
        as_output(tensor)


def test_helpers_stay_in_torch() -> None:
    tensor = torch.arange(6, dtype=torch.int16).reshape(3, 2)
    assert empty_like(tensor, (4, 2)).dtype == torch.int16
    assert tuple(empty_like(tensor, (4, 2), Dtype.bfloat16).shape) == (4, 2)
    assert empty_like(tensor, (1,), Dtype.bool_).dtype == torch.bool
    assert copy_of(tensor.T).is_contiguous()
    assert numel(tensor) == 6
    first, second = cut(tensor, [1, 2])
    second[0, 0] = 99
    assert tensor[1, 0] == 99
    assert tuple(first.shape) == (1, 2)


def test_nothing_here_imports_torch() -> None:
    program = (
        "import sys, numpy\n"
        "from distdbg.runtime.arrays.buffers import as_output\n"
        "as_output(numpy.zeros(3)); as_output(bytearray(3))\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
