"""Mappings: memory and events of the peers that this rank has open: each once, until its owner retires it."""

from __future__ import annotations

from contextlib import suppress

from distdbg.runtime.backends.gpu.driver import Driver


class Mappings:
    """Of one rank in one group."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        #: By the owner and its number of the export.
        self._open: dict[tuple[int, int], int] = {}
        self._events: dict[int, int] = {}

    def open(self, owner: int, number: int, handle: bytes) -> None:
        """Open an allocation of a peer's."""
        self._open[owner, number] = self._driver.open_memory(handle)

    def address(self, owner: int, number: int, offset: int) -> int:
        """Where a place in it is in this process."""
        return self._open[owner, number] + offset

    def close(self, owner: int, number: int) -> None:
        """The owner has retired it."""
        address = self._open.pop((owner, number), None)
        if address is not None:
            with suppress(RuntimeError):  # of CUDA: the memory is gone already
                self._driver.close_memory(address)

    def open_event(self, owner: int, handle: bytes) -> None:
        """Open the event after which a peer's arrays may be used."""
        self._events[owner] = self._driver.open_event(handle)

    def events(self) -> list[int]:
        """Those of all peers."""
        return list(self._events.values())

    def close_all(self) -> None:
        """Leave nothing open."""
        for owner, number in list(self._open):
            self.close(owner, number)
        for event in self._events.values():
            with suppress(RuntimeError):
                self._driver.close_event(event)
        self._events.clear()
