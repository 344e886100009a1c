"""Plans of gather and scatter between hosts: many blocks to root, or from it.

    linear    root exchanges a message with every rank of another host
    binomial  one rank of each host packs the blocks of its host, and of the hosts below it in a tree

Root's network card carries every block in any case; the tree spares it messages and connections.
"""

from __future__ import annotations

from distdbg.runtime.plan.between.host import give_blocks, swap_blocks
from distdbg.runtime.plan.between.lane_position import LanePosition
from distdbg.runtime.plan.between.tree_shapes import (
    binomial_children,
    binomial_end,
    binomial_parent,
)
from distdbg.runtime.plan.build import Place, at_input, at_output, at_scratch
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


class _Tree:
    """Hosts in their order behind root's, each with the one rank that exchanges messages."""

    def __init__(self, position: LanePosition) -> None:
        self.position = position
        self.root = position.problem.root
        self.root_host = position.topology.layout.host_of(self.root)
        self.virtual = (position.host - self.root_host) % position.count
        #: How many ranks the hosts before a virtual one have, behind root's.
        self.ranks_before = [0]
        for v in range(position.count):
            self.ranks_before.append(self.ranks_before[-1] + len(self.ranks(v)))

    def ranks(self, virtual: int) -> tuple[int, ...]:
        """The ranks of a virtual host."""
        return self.position.hosts[(virtual + self.root_host) % self.position.count]

    def leader(self, virtual: int) -> int:
        """The rank of a virtual host that exchanges messages."""
        return self.ranks(virtual)[0] if virtual else self.root

    @property
    def is_leader(self) -> bool:
        """Whether this rank is one."""
        return self.position.rank == self.leader(self.virtual)

    def begin(self, virtual: int, nbytes: int) -> int:
        """Where the blocks of a virtual host begin in this rank's scratch memory."""
        return (self.ranks_before[virtual] - self.ranks_before[self.virtual]) * nbytes

    def span(self, nbytes: int) -> int:
        """The bytes of this host and of those below it."""
        return self.begin(binomial_end(self.virtual, self.position.count), nbytes)


def plan_gather(problem: Problem, topology: Topology, name: str) -> Plan:
    """The input of rank p becomes output block p of root."""
    position = LanePosition(problem, topology, leaders=True)
    steps, nbytes, root = position.steps, problem.in_nbytes[0], problem.root
    is_root_here = topology.layout.host_of(root) == position.host
    if name == "linear":

        def place(rank: int) -> Place | None:
            return at_output(0, rank) if position.rank == root else None

        swap_blocks(position, lambda _: nbytes, nbytes, place, taker=root)
        if position.rank == root:
            for turn in range(1, position.count):
                for rank in position.hosts[(position.host + turn) % position.count]:
                    steps.recv(rank, at_output(0, rank), nbytes)
        elif not is_root_here:
            steps.send(root, at_input(), nbytes)
        return steps.plan(name)
    tree = _Tree(position)
    base = steps.scratch(tree.span(nbytes)) if tree.is_leader else 0

    def packed(rank: int) -> Place | None:
        if position.rank == root:
            return at_output(0, rank)
        if not tree.is_leader:
            return None
        return at_scratch(base + topology.layout.place_of(rank) * nbytes)

    swap_blocks(position, lambda _: nbytes, nbytes, packed, taker=tree.leader(tree.virtual))
    if tree.is_leader:
        for child in binomial_children(tree.virtual, position.count):
            begin = tree.begin(child, nbytes)
            length = tree.begin(binomial_end(child, position.count), nbytes) - begin
            steps.recv(tree.leader(child), at_scratch(base + begin), length)
        parent = binomial_parent(tree.virtual)
        if parent is not None:
            steps.send(tree.leader(parent), at_scratch(base), tree.span(nbytes))
    if position.rank == root:
        for virtual in range(1, position.count):
            for i, rank in enumerate(tree.ranks(virtual)):
                begin = tree.begin(virtual, nbytes) + i * nbytes
                steps.copy(at_scratch(base + begin), at_output(0, rank), nbytes)
    return steps.plan(name)


def plan_scatter(problem: Problem, topology: Topology, name: str) -> Plan:
    """Root's input block p becomes the output of rank p."""
    position = LanePosition(problem, topology, leaders=True)
    steps, nbytes, root = position.steps, problem.out_nbytes[0], problem.root
    steps.gate()
    root_host = topology.layout.host_of(root)
    if name == "linear":
        if position.rank == root:
            for turn in range(1, position.count):
                for rank in position.hosts[(position.host + turn) % position.count]:
                    steps.send(rank, at_input(0, rank), nbytes)
        elif position.host != root_host:
            steps.recv(root, at_output(), nbytes)
        # Only root's host has something to hand out.
        giver = root if position.host == root_host else position.rank
        give_blocks(
            position,
            lambda _: nbytes,
            lambda rank: giver if position.host == root_host else rank,
            lambda rank: at_input(0, rank) if position.rank == root else at_output(),
        )
        return steps.plan(name)
    tree = _Tree(position)
    base = steps.scratch(tree.span(nbytes)) if tree.is_leader else 0
    if position.rank == root:
        for virtual in range(1, position.count):
            for i, rank in enumerate(tree.ranks(virtual)):
                begin = tree.begin(virtual, nbytes) + i * nbytes
                steps.copy(at_input(0, rank), at_scratch(base + begin), nbytes)
    elif tree.is_leader:
        parent = binomial_parent(tree.virtual)
        assert parent is not None
        steps.recv(tree.leader(parent), at_scratch(base), tree.span(nbytes))
    if tree.is_leader:
        for child in reversed(binomial_children(tree.virtual, position.count)):
            begin = tree.begin(child, nbytes)
            length = tree.begin(binomial_end(child, position.count), nbytes) - begin
            steps.send(tree.leader(child), at_scratch(base + begin), length)

    def given(rank: int) -> Place:
        if position.rank == root:
            return at_input(0, rank)
        return at_scratch(base + topology.layout.place_of(rank) * nbytes)

    give_blocks(position, lambda _: nbytes, lambda _: tree.leader(tree.virtual), given)
    return steps.plan(name)
