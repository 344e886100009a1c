"""The groups that the steps of a program name by number."""

from __future__ import annotations


def make_groups(world_size: int) -> list[list[int]]:
    """Global ranks in the order of group ranks; 0 is given as None and 1 as group.WORLD."""
    everyone = list(range(world_size))
    pairs = [[a, b] for a in everyone for b in everyone if a < b]
    return [everyone, everyone, everyone, *pairs, [world_size - 1, 0], [1]]


UNSORTED = -2
"""Place in make_groups of the group whose ranks are not in ascending order."""
