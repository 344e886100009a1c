"""batches: a loop over batches whose steps, and whose end, are in the record of the rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from distdbg.errors import WrongTypeError
from distdbg.record.known_marks import BATCH, OUT_OF_BATCHES
from distdbg.runtime.api.marks import mark
from distdbg.runtime.process.world import observed

T = TypeVar("T")


class batches(Generic[T]):
    """The same batches, marked in the record: `for batch in dist.batches(loader):`.

    Each one is a mark 'batch' with its number, and a loop that comes to the end of them one 'out of batches'.
    So where ranks have different numbers of them, a hang is told as 'rank 2 ran out of batches at step 311'.
    Each loop over it counts anew; one that is left by `break` has not run out.
    """

    def __init__(self, iterable: Iterable[T]) -> None:
        if not isinstance(iterable, Iterable):
            raise WrongTypeError(f"batches: {type(iterable).__name__} cannot be iterated over")
        self._iterable = iterable

    def __iter__(self) -> Iterator[T]:
        count = 0
        world = observed()
        loop, before = object(), world.batch
        try:
            for batch in self._iterable:
                count += 1
                mark(BATCH, count)
                world.batch = loop, count
                yield batch
            mark(OUT_OF_BATCHES, count)
        finally:
            world.batch = before  # of the loop around it

    def __len__(self) -> int:
        """How many there are, where that is known."""
        return len(self._iterable)  # type: ignore[arg-type]
