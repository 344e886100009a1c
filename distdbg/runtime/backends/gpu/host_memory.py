"""HostMemory: memory, pinned where there is room, that pieces of arrays go through, kept between ops."""

from __future__ import annotations

from distdbg.runtime.backends.gpu.driver import Bytes, Driver
from distdbg.runtime.backends.gpu.pinned_memory import pin_if_possible


class HostMemory:
    """Of one group. Each place grows to what was asked of it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._places: dict[tuple[int, str], Bytes] = {}

    def take(self, number: int, use: str, nbytes: int) -> Bytes:
        """The first bytes of a place; what was in them is over."""
        place = self._places.get((number, use))
        if place is None or len(place) < nbytes:
            place = self._places[number, use] = pin_if_possible(self._driver, max(1, nbytes))
        return place[:nbytes]

    def keep_below(self, nbytes: int) -> None:
        """Give back places that are larger: of an op that could not be cut."""
        for key, place in list(self._places.items()):
            if len(place) > nbytes:
                del self._places[key]

    def free(self) -> None:
        """Give all of it back."""
        self._places.clear()
