"""The few names of NumPy that the programs use, making tensors: `import numpy as np` under torch."""

from __future__ import annotations

import math
from typing import Any

import torch

float32, float64, float16 = torch.float32, torch.float64, torch.float16
int32, int64, uint8 = torch.int32, torch.int64, torch.uint8
nan, inf = math.nan, math.inf

copy = torch.clone
stack = torch.stack
concatenate = torch.cat


def zeros(shape: Any, dtype: Any = float64) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def ones(shape: Any, dtype: Any = float64) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def empty(shape: Any, dtype: Any = float64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def full(shape: Any, value: float, dtype: Any = float64) -> torch.Tensor:
    return torch.full(shape if isinstance(shape, tuple) else (shape,), value, dtype=dtype)


def array(values: Any, dtype: Any = float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def arange(*bounds: float, dtype: Any = int64) -> torch.Tensor:
    return torch.arange(*bounds, dtype=dtype)


def zeros_like(other: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(other)
