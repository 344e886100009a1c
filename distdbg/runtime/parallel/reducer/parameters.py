"""Parameter: what ranks must agree on about one array that has a gradient. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from distdbg.ops.dtypes import Dtype

_BY_LABEL = {dtype.label: dtype for dtype in Dtype}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Its name, the label of its dtype ('float32') and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of its gradient."""
        return self.count * _BY_LABEL[self.dtype].itemsize

    @property
    def form(self) -> str:
        """'float32[3,4]', as messages have it."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"
