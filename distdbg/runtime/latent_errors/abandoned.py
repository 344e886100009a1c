"""Leaked groups: made again and again by one line, and no longer reachable by the program.

A program that holds no reference to a group can no longer use or destroy it; its memory and its keys stay
until all groups are destroyed. One such group may be intended. When the same line makes more groups of the
same ranks, it is in a loop. The check runs when a group is made, and never at the end: a function that has
returned has dropped all its references.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from distdbg.check.latent import CodeLine, LatentErrors, LatentFinding

#: How many groups of the same ranks one line has to make.
_LEAST_MADE: Final = 3


class _Group(Protocol):
    @property
    def ranks(self) -> Sequence[int]: ...
    @property
    def label(self) -> str: ...
    @property
    def engine(self) -> object: ...


@dataclass(frozen=True, slots=True)
class _Made:
    """One group of this rank that was made by a line of the program."""

    name: str
    engine: int
    """Identity of what carried out its ops then: a group with another one is referred to by others."""
    reference_count: int
    """While nobody but the package referred to it."""


class AbandonedGroups:
    """The groups that one rank has made; `groups` are those that live, by name."""

    def __init__(self, latent: LatentErrors, groups: Mapping[str, _Group]) -> None:
        self.latent = latent
        self._groups = groups
        self._made: dict[tuple[str, tuple[int, ...]], list[_Made]] = {}
        self._places: dict[str, CodeLine] = {}

    def made(self, name: str, place: CodeLine | None) -> None:
        """A group was made, and its caller does not have it yet."""
        if place is None or not self.latent.is_on:
            return
        group = self._groups[name]
        site = str(place)
        self._places[site] = place
        mine = self._made.setdefault((site, tuple(group.ranks)), [])
        mine.append(_Made(name, id(group.engine), sys.getrefcount(group)))
        if len(mine) >= _LEAST_MADE:
            self._look(site, mine)

    def _look(self, site: str, mine: list[_Made]) -> None:
        mine[:] = [made for made in mine if made.name in self._groups]
        # The last is not yet in the hands of the program.
        if len(mine) < _LEAST_MADE or not any(map(self._is_abandoned, mine[:-1])):
            return
        label = self._groups[mine[0].name].label
        self.latent.report(
            LatentFinding(
                type="LeakedGroup",
                kind="",
                group=label,
                what="groups of the same ranks are made by one line, and never destroyed",
                begun="made them",
                place=self._places[site],
                hint="make the group once, before the loop, or call destroy_process_group on each",
                times=len(mine),
            )
        )

    def _is_abandoned(self, made: _Made) -> bool:
        group = self._groups[made.name]
        return id(group.engine) == made.engine and sys.getrefcount(group) <= made.reference_count
