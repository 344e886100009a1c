"""Ranks that are threads, for tests of GradientReducer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import distdbg as dist

Floats = npt.NDArray[np.float32]


RANKS = 3


def run(fn: Callable[[int], Any], ranks: int = RANKS) -> list[Any]:
    return dist.run_threads(lambda: fn(dist.get_rank()), ranks, timeout_s=30)


def full(shape: Any, value: float) -> Floats:
    return np.full(shape, value, np.float32)
