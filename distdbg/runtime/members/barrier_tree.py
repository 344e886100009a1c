"""The tree in which monitored_barrier gathers a group's ranks. Pure functions of group ranks.

    arity 2, 7 ranks:           0
                            1       2
                          3   4   5   6

Every rank waits for its children and for rank 0's verdict, so no rank reads the keys of all on the good path.
On the bad one, `find_missing` looks up which ranks arrived: it walks only incomplete branches, and the
children of a missing inner rank.
"""

from __future__ import annotations

from collections.abc import Callable


def children_of(rank: int, size: int, arity: int) -> range:
    """Return the ranks that report to `rank`."""
    first = rank * arity + 1
    return range(min(first, size), min(first + arity, size))


def parent_of(rank: int, arity: int) -> int:
    """Return the rank that `rank` reports to; -1 for rank 0."""
    return (rank - 1) // arity


def depth_of(rank: int, arity: int) -> int:
    """Return how many reports lie between `rank` and rank 0."""
    depth = 0
    while rank > 0:
        rank = parent_of(rank, arity)
        depth += 1
    return depth


def find_missing(
    size: int,
    arity: int,
    is_complete: Callable[[int], bool],
    has_come: Callable[[int], bool],
) -> tuple[list[int], list[int]]:
    """Return who has not come, and who came, has all reports and passed nothing on.

    `is_complete(rank)`: it has reported that its whole subtree has come. `has_come(rank)`: it has
    said so itself; asked for inner ranks only, since a leaf reports at once.
    """
    missing: list[int] = []
    stuck: list[int] = []
    # No recursion: with an arity of one the tree is as deep as the group is large.
    todo: list[tuple[int, bool]] = [(0, False)]
    incomplete: set[int] = set()
    while todo:
        rank, is_asked = todo.pop()
        children = children_of(rank, size, arity)
        if is_asked:
            if has_come(rank):
                if not incomplete.intersection(children):
                    stuck.append(rank)
            else:
                missing.append(rank)
            continue
        if is_complete(rank):
            continue
        incomplete.add(rank)
        if not children:
            missing.append(rank)
            continue
        todo.append((rank, True))  # after its children
        todo.extend((child, False) for child in children)
    return sorted(missing), sorted(stuck)
