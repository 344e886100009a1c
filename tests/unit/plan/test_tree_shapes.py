"""Trees span all members, and the two binary ones share no inner member."""

from __future__ import annotations

import pytest

from distdbg.runtime.plan.between.halving import Pairs
from distdbg.runtime.plan.between.tree_shapes import (
    TreeMember,
    binary_node,
    binary_root,
    binomial_children,
    binomial_end,
    binomial_node,
    binomial_parent,
)

COUNTS = range(1, 40)


def below(nodes: list[TreeMember], v: int) -> list[int]:
    """A member and those below it, from left to right."""
    left = [one for child in nodes[v].left for one in below(nodes, child)]
    right = [one for child in nodes[v].right for one in below(nodes, child)]
    return [*left, v, *right]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("second", [False, True])
def test_binary_trees_span_all_members_in_order(count: int, second: bool) -> None:
    nodes = [binary_node(v, count, second=second) for v in range(count)]
    root = binary_root(count, second=second)
    assert [v for v in range(count) if nodes[v].parent is None] == [root]
    order = below(nodes, root)
    assert order == sorted(order, key=lambda v: (v + second) % count)
    assert sorted(order) == list(range(count))
    for v, node in enumerate(nodes):
        for child in (*node.left, *node.right):
            assert nodes[child].parent == v
            assert nodes[child].depth == node.depth + 1
        assert node.depth <= count.bit_length()


@pytest.mark.parametrize("count", COUNTS)
def test_nobody_is_inside_of_both_binary_trees(count: int) -> None:
    for v in range(count):
        trees = [binary_node(v, count, second=second) for second in (False, True)]
        assert sum(bool(node.left or node.right) for node in trees) <= 1 or count < 3


@pytest.mark.parametrize("count", COUNTS)
def test_binomial_trees_span_all_members(count: int) -> None:
    for v in range(count):
        children = binomial_children(v, count)
        assert all(binomial_parent(child) == v for child in children)
        ends = [*children[1:], binomial_end(v, count)]
        assert [binomial_end(child, count) for child in children] == ends[: len(children)]
        assert binomial_node(v, count).depth <= count.bit_length()
    assert binomial_parent(0) is None


@pytest.mark.parametrize("count", range(2, 40))
def test_pairs_are_neighbours_and_keep_the_order(count: int) -> None:
    pairs = Pairs(count)
    hosts = [pairs.real(v) for v in range(pairs.power)]
    assert hosts == sorted(set(hosts))
    for host in range(count):
        if pairs.is_idle(host):
            assert pairs.stands_for_two(host - 1)
            assert pairs.virtual(host) == pairs.virtual(host - 1)
        else:
            assert pairs.real(pairs.virtual(host)) == host
    assert pairs.first_host(pairs.power) == count
