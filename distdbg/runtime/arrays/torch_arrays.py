"""What the runtime needs of PyTorch CPU tensors, without ever importing torch.

A tensor can only be here when its maker imported torch, so the module is taken from sys.modules.
Autograd plays no part, as in torch.distributed: a tensor that requires grad is read and written as
its `detach()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from distdbg.errors import UsageError
from distdbg.ops.dtypes import CARRIERS, Dtype, from_torch

if TYPE_CHECKING:
    import numpy as np

# A torch.Tensor, and the torch module; torch's own types are not ours to import.
Tensor = Any
Torch = Any

# torch spells the unsigned integers as NumPy does; asking NumPy for a name each time takes 1 us.
_CARRIER_NAMES = {dtype: carrier.name for dtype, carrier in CARRIERS.items()}


def is_tensor(x: object) -> bool:
    """Whether x is a torch.Tensor of any kind; False as long as nobody imported torch."""
    tensor_type = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor_type is not None and isinstance(x, tensor_type)


def wants_gradient(arrays: Iterable[object]) -> bool:
    """Whether autograd follows one of them here."""
    if "torch" not in sys.modules:
        return False
    wants = any(is_tensor(x) and getattr(x, "requires_grad", False) for x in arrays)
    return wants and bool(_torch().is_grad_enabled())


def _torch() -> Torch:
    return sys.modules["torch"]


def dtype_of(x: Tensor, name: str) -> Dtype:
    """The Dtype of a tensor whose memory we can use; UsageError for all others."""
    if not x.is_cpu:
        raise UsageError(
            f"{name} is a tensor on device {x.device}; the arrays of this group are on the CPU",
            hint="pass tensor.cpu(), or use a group whose backend serves that device",
        )
    if x.layout is not _torch().strided:
        raise UsageError(
            f"{name} is a tensor with layout {x.layout}; only dense (strided) tensors can be used",
            hint="pass tensor.to_dense(), or communicate its indices and values",
        )
    dtype = from_torch(x.dtype)
    if dtype is None:
        known = ", ".join(known.label for known in Dtype)
        raise UsageError(
            f"{name} is a tensor of dtype {x.dtype}, which cannot be communicated",
            details=[f"known dtypes: {known}"],
        )
    return dtype


def as_numpy(x: Tensor, dtype: Dtype) -> np.ndarray[Any, Any]:
    """The memory of a plain tensor as an array; CARRIERS stand in for bfloat16 and float8."""
    if x.requires_grad:
        x = x.detach()
    carrier = _CARRIER_NAMES.get(dtype)
    if carrier is not None:
        x = x.view(getattr(_torch(), carrier))
    array: np.ndarray[Any, Any] = x.numpy()
    return array


def simple_memory(x: Tensor) -> tuple[np.ndarray[Any, Any], Dtype] | None:
    """as_numpy() for the common tensor: on the CPU, dense, nothing lazy about it; else None.

    Tensor.numpy() itself refuses the others, which is cheaper than asking all of it beforehand.
    """
    dtype = from_torch(x.dtype)
    if dtype is None:
        return None
    try:
        return as_numpy(x, dtype), dtype
    except (RuntimeError, TypeError):
        return None


def is_plain(x: Tensor) -> bool:
    """Whether the memory of x is its elements in order, with no pending conjugation or negation."""
    return bool(x.is_contiguous() and not x.is_conj() and not x.is_neg())


def plain_copy(x: Tensor) -> Tensor:
    """A contiguous copy with conjugation and negation carried out."""
    torch = _torch()
    x = x.detach()
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


def copier(x: Tensor, source: Tensor) -> Callable[[], None]:
    """What copies `source` into x, also through strides and a conjugate view."""

    def copy_back() -> None:
        x.detach().copy_(source)

    return copy_back


def has_shared_elements(x: Tensor) -> bool:
    """Whether several elements are one place in memory, as expand() makes them."""
    return any(
        stride == 0 and extent > 1 for stride, extent in zip(x.stride(), x.shape, strict=True)
    )


def empty(x: Tensor, shape: Sequence[int], dtype: Dtype | None) -> Tensor:
    """A new tensor beside x: same device, and same dtype unless given."""
    torch = _torch()
    wanted = x.dtype if dtype is None else getattr(torch, dtype.label)
    return torch.empty(tuple(shape), dtype=wanted, device=x.device)


def from_bytes(flat: np.ndarray[Any, Any], dtype: Dtype, shape: Sequence[int]) -> Tensor:
    """A tensor over the memory of an array of bytes."""
    torch = _torch()
    return torch.from_numpy(flat).view(getattr(torch, dtype.label)).reshape(tuple(shape))


def stack_parts(x: Tensor, count: int, dim: int) -> Tensor:
    """A new tensor: `count` equal parts of x along a dimension, one after the other in memory."""
    return _torch().stack(x.detach().chunk(count, dim))


def join_along(parts: Tensor, dim: int) -> Tensor:
    """A new tensor: those that are stacked in `parts`, side by side along one of their dimensions."""
    return _torch().cat(parts.unbind(0), dim)
