"""How long a wait in Python sleeps between two looks at a library that wakes nobody: MPI, UCC.

Such a library makes progress while somebody asks for it, and nothing wakes a thread that waits for a message.
With more ranks than cores whoever asks without end keeps the core from the rank it waits for.
"""

from __future__ import annotations

import time
from typing import Final

#: Looks between which the core is only offered to others.
_YIELDS: Final = 50
_FIRST_S: Final = 20e-6
_GROWTH: Final = 1.2
#: The longest sleep; the page of the job is looked at after each.
LONGEST_S: Final = 1e-3


class PollBackoff:
    """Called between two looks: `spins` times it does nothing, then it sleeps longer each time."""

    __slots__ = ("_left", "_next_s")

    def __init__(self, spins: int = 0) -> None:
        self._left = _YIELDS + spins
        self._next_s = _FIRST_S

    def __call__(self) -> None:
        if self._left:
            self._left -= 1
            if self._left < _YIELDS:
                time.sleep(0)
            return
        time.sleep(self._next_s)
        self._next_s = min(self._next_s * _GROWTH, LONGEST_S)
