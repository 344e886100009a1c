"""Exports: allocations of this rank that its peers have open, or may open.

A handle stands for a whole allocation (of CuPy's or torch's pool, which cut arrays out of it), so what is
kept is kept by allocation, and an array is a place in one. CUDA numbers allocations: when one was freed and
another lies where it was, the number is another one. Then, or when there are too many, the export is retired:
the peers are told in the next op, before anything new is opened, and close it. Only the owner decides what is
retired, so all ranks know of the same exports.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from distdbg.runtime.backends.gpu.driver import Driver

#: Kept open at most, so that memory that the program gave back is not held for long.
MOST_OPEN: Final = 64
#: Told in one op at most.
MOST_RETIRED: Final = 8


class Export(NamedTuple):
    """One allocation, by a number that is never used again."""

    number: int
    base: int
    buffer_id: int
    handle: bytes


class IpcExports:
    """Of one rank in one group."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        #: By the number that CUDA gives to allocations; the one used last is the last.
        self._known: OrderedDict[int, Export] = OrderedDict()
        self._next_number = 0
        self._retired: list[int] = []
        self._new: list[Export] = []

    def locate(self, address: int) -> tuple[int, int]:
        """The export that an address is in, made if it has to be, and the offset in it.

        Raises what CUDA says of an allocation that cannot be exported.
        """
        base, _ = self._driver.allocations.allocation(address)
        buffer_id = self._driver.allocations.buffer_id(base)
        export = None if buffer_id is None else self._known.get(buffer_id)
        if export is None:
            handle = self._driver.memory_handle(base)
            export = Export(self._next_number, base, -1 if buffer_id is None else buffer_id, handle)
            self._next_number += 1
            self._known[export.buffer_id] = export
            self._new.append(export)
        self._known.move_to_end(export.buffer_id)
        return export.number, address - export.base

    def changes(self) -> tuple[list[Export], list[int]]:
        """What the peers have to open, and what they have to close, until commit() or roll_back()."""
        fresh = {export.number for export in self._new}
        for export in list(self._known.values()):
            too_many = len(self._known) > MOST_OPEN
            was_freed = self._driver.allocations.buffer_id(export.base) != export.buffer_id
            if (too_many or was_freed) and export.number not in fresh:
                del self._known[export.buffer_id]
                self._retired.append(export.number)
        return list(self._new), self._retired[:MOST_RETIRED]

    def commit(self) -> None:
        """All peers know of the news."""
        self._new.clear()
        del self._retired[:MOST_RETIRED]

    def roll_back(self) -> None:
        """The ranks differed, and no peer has opened or closed anything."""
        for export in self._new:
            self._known.pop(export.buffer_id, None)
        self._new.clear()

    def forget(self) -> None:
        """No peer has any of it open."""
        self._known.clear()
        self._new.clear()
        self._retired.clear()
