"""Status: the op at the end of a pass by which ranks learn whether it was unusual, and what was used.

A pass without a hook in which no parameter may be unused has none: an element of the last bucket is it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from distdbg.errors import MismatchError
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api.collectives import all_reduce
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.handles.work import Work
from distdbg.runtime.parallel.reducer.agreement import STATUS, is_ahead

Result = TypeVar("Result")


def named(group: ProcessGroup, name: str, start: Callable[[], Result]) -> Result:
    """Start ops that have this name in records and messages."""
    recorder = group.world.recorder
    if recorder is None:
        return start()
    before = recorder.comm
    recorder.set_comm(name)
    try:
        return start()
    finally:
        recorder.set_comm(before)


class ReducerStatus:
    """The status of one reducer: whether a pass was unusual, then for each parameter whether it was used."""

    def __init__(self, group: ProcessGroup, count: int) -> None:
        self._group = group
        self._flags = np.zeros(1 + count, np.int32)

    @property
    def is_odd(self) -> bool:
        """Whether some rank found the pass unusual."""
        return bool(self._flags[0])

    @property
    def used(self) -> list[bool]:
        """By parameter, where that was told."""
        found: list[bool] = self._flags[1:].astype(bool).tolist()
        return found

    def start(self, is_odd: bool, lacking: Sequence[int] | None) -> Work:
        """Tell it to all ranks; `lacking`: the parameters without a gradient, where those are told."""
        flags = self._flags
        flags[0] = is_odd
        sent = flags[:1]
        if lacking is not None:
            sent = flags
            flags[1:] = 1
            flags[[1 + index for index in lacking]] = 0
        begin = partial(all_reduce, sent, ReduceOp.MAX, self._group, async_op=True)
        work = named(self._group, STATUS, begin)
        assert work is not None  # it is asynchronous
        return work

    def meet(self, is_odd: bool, lacking: Sequence[int] | None) -> None:
        """Tell it again and again until all ranks are at the end of the pass; see hooked.py."""
        while True:
            try:
                self.start(is_odd, lacking).wait()
            except MismatchError as error:
                if not is_ahead(error):
                    raise
            else:
                return
