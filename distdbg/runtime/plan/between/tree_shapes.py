"""Finds the parent of each of `count` members in a tree: pure arithmetic, in constant time.

binomial       member v is a child of v without its lowest bit: root 0, as many rounds as digits
double binary  two binary trees in which members are in order from left to right; whoever has
               children in one has none in the other (but for one member, when the count is odd), so
               that each tree can carry half of the data at the full speed of every member
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeMember:
    """A member's place in one tree."""

    parent: int | None
    #: In the order of members: what comes from the left ones stands left in folds.
    left: tuple[int, ...]
    right: tuple[int, ...]
    depth: int


def binomial_parent(v: int) -> int | None:
    """None for member 0."""
    return v & (v - 1) if v else None


def binomial_children(v: int, count: int) -> list[int]:
    """In ascending order; child v + 2^k has the next 2^k members, itself too, below it."""
    children = []
    bit = 1
    while v + bit < count and not v & bit:
        children.append(v + bit)
        bit *= 2
    return children


def binomial_end(v: int, count: int) -> int:
    """The member after the last one below v."""
    return min(v + (v & -v), count) if v else count


def _parent(at: int, count: int) -> int | None:
    """In the binary tree over positions 1 to count, where odd ones are leaves."""
    bit = at & -at
    while bit <= count:
        at = (at - bit) | (bit << 1)
        bit = at & -at
        if at <= count:
            return at
    return None


def _right(at: int, count: int) -> int | None:
    step = (at & -at) >> 1
    while step and at + step > count:
        step >>= 1
    return at + step if step else None


def binary_node(v: int, count: int, *, second: bool) -> TreeMember:
    """Member v's place in the first or the second of the two trees."""
    turn = 1 if second else 0

    def member(at: int) -> int:
        return (at - 1 - turn) % count

    at = (v + turn) % count + 1
    half = (at & -at) >> 1
    right = _right(at, count)
    depth = 0
    up = parent = _parent(at, count)
    while up is not None:
        depth += 1
        up = _parent(up, count)
    return TreeMember(
        parent=None if parent is None else member(parent),
        left=(member(at - half),) if half else (),
        right=() if right is None else (member(right),),
        depth=depth,
    )


def binary_root(count: int, *, second: bool) -> int:
    """The root of the first or the second tree."""
    return ((1 << (count.bit_length() - 1)) - 1 - (1 if second else 0)) % count


def binomial_node(v: int, count: int) -> TreeMember:
    """Member v's place in the binomial tree."""
    return TreeMember(
        parent=binomial_parent(v),
        left=(),
        right=tuple(binomial_children(v, count)),
        depth=v.bit_count(),
    )
