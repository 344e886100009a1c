"""Checks who reads and writes what between two gates of a host.

Between two gates the ranks' steps may happen in any order; so every two accesses of different ranks to
the same bytes between the same two gates, one of them a write, are a race.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from distdbg.runtime.plan.contents import SymbolicMemory
from distdbg.runtime.plan.faults import Fault, FaultKind


@dataclass(slots=True)
class Accesses:
    """What happened to one memory between two gates."""

    owner: int
    #: (begin, end, rank, step), `rank` being who did it.
    reads: list[tuple[int, int, int, int]] = field(default_factory=list)
    writes: list[tuple[int, int, int, int]] = field(default_factory=list)


class AccessLog:
    """The accesses to the memories of one host since its last gate."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, Accesses] = {}

    def of(self, memory: SymbolicMemory, owner: int) -> Accesses:
        """Those to one memory."""
        found = self._of.get(id(memory))
        if found is None:
            found = self._of[id(memory)] = Accesses(owner)
        return found

    def take_races(self) -> Iterator[Fault]:
        """Compare what was read by others with what was written, and begin anew."""
        for accesses in self._of.values():
            if accesses.writes:
                yield from _races(accesses)
        self._of.clear()


def _races(accesses: Accesses) -> Iterator[Fault]:
    writes = sorted(accesses.writes)
    longest = max(end - begin for begin, end, *_ in writes)
    # Where the owner alone writes, its writes cannot be races with each other.
    others = any(writer != accesses.owner for *_, writer, _ in writes)
    for what, those in (("reads", accesses.reads), ("writes", writes if others else [])):
        yield from _compare(what, those, writes, longest, accesses.owner)


def _compare(
    what: str,
    those: list[tuple[int, int, int, int]],
    writes: list[tuple[int, int, int, int]],
    longest: int,
    owner: int,
) -> Iterator[Fault]:
    for begin, end, rank, at in those:
        i = bisect_left(writes, (begin - longest, 0, 0, 0))
        while i < len(writes) and writes[i][0] < end:
            other_begin, other_end, writer, step = writes[i]
            if other_end > begin and writer != rank:
                text = f"{what} [{begin}, {end}) of rank {owner} while rank {writer}"
                text += f" writes [{other_begin}, {other_end}) in step {step}"
                yield Fault(kind=FaultKind.RACE, rank=rank, step=at, text=text)
                break
            i += 1


class UnreadSends:
    """What a rank's SENDs read since the last gate of all hosts: it may still be on its way."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[int, int, int]]] = {}

    def add(self, memory: SymbolicMemory, begin: int, end: int, step: int) -> None:
        """Note a range."""
        self._of.setdefault(id(memory), []).append((begin, end, step))

    def overlapping(self, memory: SymbolicMemory, begin: int, end: int) -> int | None:
        """The step that sends a part of the range."""
        for other_begin, other_end, step in self._of.get(id(memory), ()):
            if begin < other_end and other_begin < end:
                return step
        return None

    def clear(self) -> None:
        """All has arrived."""
        self._of.clear()
