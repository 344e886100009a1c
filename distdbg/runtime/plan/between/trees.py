"""Reducing and broadcasting along trees, in pieces that follow one another.

A member does many things in turn, for several pieces and two trees. Their order is that of the *times*
at which they would happen if every message took one unit: piece k leaves a member at depth d of a tree
of depth D at D - d + k on its way up, and at D + d + k on its way down. Two members that exchange
messages both ways through different trees see them in the same order so, and no deadlock can come of it,
since whatever is waited for has an earlier time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdbg.runtime.plan.between.lane_position import LanePosition
from distdbg.runtime.plan.between.tree_shapes import (
    TreeMember,
    binary_node,
    binary_root,
    binomial_node,
)
from distdbg.runtime.plan.build import Place, at_scratch, shifted


@dataclass(frozen=True, slots=True)
class MemberTree:
    """One rank's place in one tree, and the pieces of the lane's stream that it carries."""

    number: int
    node: TreeMember
    #: How deep it is at most.
    depth: int
    pieces: Sequence[tuple[int, int]]
    #: The rank that is a member.
    rank_of: Callable[[int], int]


def trees_for_all(position: LanePosition, nbytes: int) -> list[MemberTree]:
    """Two trees over all hosts, half of the bytes each."""
    count = position.count
    return [
        MemberTree(
            number=number,
            node=binary_node(position.host, count, second=bool(number)),
            depth=count.bit_length(),
            pieces=pieces,
            rank_of=position.member,
        )
        for number, pieces in enumerate(_halves(position, nbytes, 2))
    ]


def trees_of_root(
    position: LanePosition, nbytes: int, root_host: int, *, double: bool
) -> list[MemberTree]:
    """One binomial tree below the root's host, or two binary trees over the other hosts below it."""
    count = position.count
    virtual = (position.host - root_host) % count

    def rank_of(member: int) -> int:
        return position.member(member + root_host)

    if not double:
        node = binomial_node(virtual, count)
        [pieces] = _halves(position, nbytes, 1)
        return [MemberTree(0, node, count.bit_length(), pieces, rank_of)]
    trees = []
    for number, pieces in enumerate(_halves(position, nbytes, 2)):
        top = binary_root(count - 1, second=bool(number)) + 1
        if virtual == 0:
            node = TreeMember(None, (), (top,), 0)
        else:
            under = binary_node(virtual - 1, count - 1, second=bool(number))
            node = TreeMember(
                parent=0 if under.parent is None else under.parent + 1,
                left=tuple(member + 1 for member in under.left),
                right=tuple(member + 1 for member in under.right),
                depth=under.depth + 1,
            )
        trees.append(MemberTree(number, node, count.bit_length() + 1, pieces, rank_of))
    return trees


def _halves(position: LanePosition, nbytes: int, parts: int) -> list[list[tuple[int, int]]]:
    most = position.tree_piece(nbytes)
    itemsize = position.problem.itemsize
    middle = nbytes // parts // itemsize * itemsize
    ranges = [(0, nbytes)] if parts == 1 else [(0, middle), (middle, nbytes - middle)]
    return [
        [(begin + offset, length) for offset, length in position.pieces(size, most)]
        for begin, size in ranges
    ]


#: A time, the tree's number, whether it is the way down; and what to do then.
Entry = tuple[tuple[int, int, int], Callable[[], None]]


def reduce(
    position: LanePosition, trees: Sequence[MemberTree], own: Place, work: Place, out: Place | None
) -> None:
    """The streams of all hosts, folded, come to lie in `work` of the root, or in `out` of all.

    `own` is where this host's stream lies; it may be `out` or a part of it. `work` is as long. Without
    `out` the result is in `work` of the root's lane, and not yet divided.
    """
    spare: list[Place] = []
    entries: list[Entry] = []
    for tree in trees:
        for k, (offset, nbytes) in enumerate(tree.pieces):
            fold = _fold_piece(position, tree, own, work, spare, offset, nbytes)
            entries.append(((tree.depth - tree.node.depth + k, tree.number, 0), fold))
    if any(tree.node.left or tree.node.right for tree in trees):
        most = max((n for tree in trees for _, n in tree.pieces), default=0)
        spare.append(at_scratch(position.steps.scratch(most)))
    if out is not None:
        for tree in trees:
            entries += _pass_down(position, tree, out, work)
    _carry_out(entries)


def broadcast(position: LanePosition, trees: Sequence[MemberTree], out: Place) -> None:
    """The stream of the root comes to lie in `out` of all hosts."""
    entries: list[Entry] = []
    for tree in trees:
        entries += _pass_down(position, tree, out, None)
    _carry_out(entries)


def _carry_out(entries: list[Entry]) -> None:
    for _, act in sorted(entries, key=lambda entry: entry[0]):
        act()


def _fold_piece(
    position: LanePosition,
    tree: MemberTree,
    own: Place,
    work: Place,
    spare: list[Place],
    offset: int,
    nbytes: int,
) -> Callable[[], None]:
    """Take a piece from the children, fold it with one's own, and hand it to the parent."""

    def act() -> None:
        steps, node = position.steps, tree.node
        mine, here = shifted(own, offset), shifted(work, offset)
        is_empty = True
        for child in node.left:
            steps.recv(tree.rank_of(child), here, nbytes)
            steps.fold_after(here, mine, nbytes)
            is_empty = False
        for child in node.right:
            if is_empty:
                steps.recv(tree.rank_of(child), here, nbytes)
                steps.fold_before(here, mine, nbytes)
                is_empty = False
            else:
                steps.recv(tree.rank_of(child), spare[0], nbytes)
                steps.fold_after(here, spare[0], nbytes)
        if is_empty:
            steps.copy(mine, here, nbytes)
        if node.parent is not None:
            steps.send(tree.rank_of(node.parent), here, nbytes)

    return act


def _pass_down(
    position: LanePosition, tree: MemberTree, out: Place, work: Place | None
) -> list[Entry]:
    """Take the pieces from the parent, or the result from `work` at the root, and pass them on."""
    steps, node = position.steps, tree.node

    def pass_on(offset: int, nbytes: int) -> Callable[[], None]:
        def act() -> None:
            if node.parent is not None:
                steps.recv(tree.rank_of(node.parent), shifted(out, offset), nbytes)
            elif work is not None:
                steps.divide(shifted(work, offset), nbytes)
                steps.copy(shifted(work, offset), shifted(out, offset), nbytes)
            for child in reversed((*node.left, *node.right)):
                steps.send(tree.rank_of(child), shifted(out, offset), nbytes)

        return act

    return [
        ((tree.depth + node.depth + k, tree.number, 1), pass_on(offset, nbytes))
        for k, (offset, nbytes) in enumerate(tree.pieces)
    ]
