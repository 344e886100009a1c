"""IssuedRecord: what the record of an op on a GPU is told, by whoever carries the op out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class IssuedRecord(NamedTuple):
    """An op in the record, as it was issued; called when it starts."""

    started: Callable[[], object]
    #: Told how long the device took, before the op ends.
    measured: Callable[[int], object]

    def __call__(self) -> object:
        return self.started()
