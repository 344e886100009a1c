"""Which ranks are the cause, and which its victims: the one rule for colours and order.

    cause       red, marked with `!`, its row first
    victim      dim yellow
    the rest    quiet; without a verdict by its own state

The verdict of the snapshot says who is what, while there is a headline. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Role
from distdbg.tui.cells import Cell, Tone, is_fault, tone_of
from distdbg.tui.verdict import role_ranks, root_of
from distdbg.view.snapshot import RankRow, Snapshot

#: Marks the row of a cause, also where there are no colours.
MARK: Final = "!"


@dataclass(frozen=True, slots=True)
class RankRoles:
    """The causes and the victims of what is wrong."""

    causes: frozenset[int] = frozenset()
    victims: frozenset[int] = frozenset()

    def has(self, rank: int) -> bool:
        """Whether the verdict names it."""
        return rank in self.causes or rank in self.victims

    def tone(self, row: RankRow) -> Tone:
        """The tone of a rank in every view."""
        if row.rank in self.causes:
            return Tone.FAULT
        if row.rank in self.victims:
            return Tone.VICTIM
        own = tone_of(row.state)
        if not self.causes:
            return own
        return {Tone.FAULT: Tone.WARN, Tone.ACCENT: Tone.PLAIN}.get(own, own)

    def is_fault(self, row: RankRow) -> bool:
        """Whether faults-only leaves it: all whom the headline names, and who is in no good state."""
        return self.has(row.rank) or is_fault(row.state)

    def mark(self, rank: int) -> Cell:
        """What stands before the row of a rank."""
        return Cell(MARK, Tone.FAULT) if rank in self.causes else Cell("")

    def first(self, known: Iterable[int]) -> list[int]:
        """These ranks, the causes before all others."""
        found = list(known)
        if not self.causes:
            return found
        causes = [rank for rank in found if rank in self.causes]
        return [*causes, *(rank for rank in found if rank not in self.causes)]


NOBODY: Final = RankRoles()


def parts_of(snapshot: Snapshot) -> RankRoles:
    """The roles by the root cause of the verdict; nobody has one while the headline is silent."""
    root = root_of(snapshot.verdict)
    if root is None or not snapshot.lines:
        return NOBODY
    causes = {*role_ranks(snapshot.verdict, Role.ROOT), *root.ranks}
    victims = {*role_ranks(snapshot.verdict, Role.VICTIM), *root.victims}
    return RankRoles(frozenset(causes), frozenset(victims - causes))
