"""BlockingOp: an op that its caller waits for at once, to be compared with those in flight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from distdbg.ops.call import Call, Kind


class OpGroup(Protocol):
    """What is asked of the group of an op: how to name it, and where this rank is in it."""

    record_number: int

    @property
    def label(self) -> str: ...
    @property
    def engine(self) -> object: ...
    def rank(self) -> int: ...


class BlockingOp:
    """An op that its caller waits for at once."""

    __slots__ = ("call", "group", "is_shared")

    def __init__(self, group: OpGroup, call: Call) -> None:
        self.group = group
        self.call = call
        self.is_shared = False

    def ranges(self) -> Iterator[tuple[int, int, bool]]:
        """Return the memory of whole NumPy arrays: begin, end, whether the op writes it."""
        call = self.call
        is_one = call.inputs is call.outputs
        # The root of a broadcast only reads.
        writes = call.kind is not Kind.BROADCAST or self.group.rank() != call.root
        for each in call.outputs:
            if (span := _span(each)) is not None:
                yield *span, writes
        for each in call.inputs if not is_one else ():
            if (span := _span(each)) is not None:
                yield *span, False


def _span(array: Any) -> tuple[int, int] | None:
    if type(array) is not np.ndarray or not array.nbytes or not array.flags.c_contiguous:
        return None
    begin = array.__array_interface__["data"][0]
    return begin, begin + array.nbytes
