"""Foreseen: whether an op of an FSDP unit is the one that followed the last one before.

FSDP2 gathers and reduces its units in the order of the model, as DDP does its buckets. So at DETAIL the
ranks meet before the first op of a pass (forward or backward), and those that follow as in a pass before wait
for nobody: their agreements are made as ever. An op of the program's own has no such name, and always meets.
"""

from __future__ import annotations

from typing import Any

from distdbg.runtime.parallel.reducer.names import is_unit
from distdbg.torch_bridge.training.patching import count_phases

#: Ops whose followers are known; a program that never repeats one starts again.
_MOST_KNOWN = 4096


class Foreseen:
    """What follows what in one group."""

    __slots__ = ("_after", "_last", "_phase")

    def __init__(self) -> None:
        self._after: dict[object, object] = {}
        self._last: object = None
        self._phase = -1

    def is_next(self, known: Any, comm: str) -> bool:
        """Note that this op is started; whether it was to be expected. `comm`: what the record calls it."""
        return is_unit(comm) and self.follows((known, comm), count_phases())

    def follows(self, op: object, phase: int) -> bool:
        """The same of any op, in this phase of the program: forward and backward passes count one each."""
        is_first = phase != self._phase
        place = (phase % 2, None if is_first else self._last)
        is_usual = not is_first and self._after.get(place) == op
        if len(self._after) >= _MOST_KNOWN:
            self._after.clear()
        self._after[place] = op
        self._last, self._phase = op, phase
        return is_usual
