"""The process groups that are alive: made in every way there is, and destroyed, on the way.

All ranks keep the same list, also of groups that they are not in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import distdbg as dist
from benchmarks.soak.draw import Draw
from distdbg import ProcessGroup

_MOST_ALIVE: Final = 6


@dataclass(slots=True)
class Alive:
    """A group; None on a rank that is not in it."""

    ranks: tuple[int, ...]
    group: ProcessGroup | None


class Pool:
    """The default group first, then those that come and go."""

    def __init__(self) -> None:
        everybody = dist.group.WORLD
        assert everybody is not None
        self._me = dist.get_rank()
        self._size = dist.get_world_size()
        self.alive = [Alive(tuple(range(self._size)), everybody)]
        self.made = 0

    def change(self, draw: Draw) -> None:
        """Make a group, or destroy one."""
        if len(self.alive) > _MOST_ALIVE or (len(self.alive) > 1 and draw.chance(2)):
            self._destroy(self.alive.pop(1 + draw.below(len(self.alive) - 1)))
            return
        draw.choice((self._new, self._new_local, self._split, self._halves))(draw)

    def destroy_all(self) -> None:
        """All but the default group."""
        while len(self.alive) > 1:
            self._destroy(self.alive.pop())

    def _destroy(self, alive: Alive) -> None:
        if alive.group is not None:
            dist.destroy_process_group(alive.group)

    def _add(self, ranks: Sequence[int], group: object) -> None:
        self.made += 1
        self.alive.append(Alive(tuple(ranks), group if isinstance(group, ProcessGroup) else None))

    def _some(self, draw: Draw, among: Sequence[int]) -> list[int]:
        """At least one of them, in their order."""
        chosen = 1 + draw.below((1 << len(among)) - 1)
        return [rank for place, rank in enumerate(among) if chosen >> place & 1]

    def _new(self, draw: Draw) -> None:
        ranks = self._some(draw, range(self._size))
        is_turned = draw.chance(3)
        if is_turned:
            ranks.reverse()
        self._add(ranks, dist.new_group(ranks, sort_ranks=not is_turned, group_desc="drawn"))

    def _new_local(self, draw: Draw) -> None:
        ranks = self._some(draw, range(self._size))
        group = None
        if self._me in ranks:
            group = dist.new_group(ranks, use_local_synchronization=True)
        self._add(ranks, group)

    def _split(self, draw: Draw) -> None:
        parent = draw.choice(self.alive)
        part = self._some(draw, range(len(parent.ranks)))
        group = None
        if parent.group is not None:
            group = dist.split_group(parent.group, [part])
        self._add([parent.ranks[rank] for rank in part], group)

    def _halves(self, draw: Draw) -> None:
        count = draw.choice([n for n in range(1, self._size) if self._size % n == 0])
        _, groups = dist.new_subgroups(count)
        for place, group in enumerate(groups):
            self._add(range(place * count, (place + 1) * count), group)
