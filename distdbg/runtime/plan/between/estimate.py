"""How long each algorithm would take between hosts, in closed form.

For choosing, on the way of the first call of a shape; `distdbg.runtime.plan.timing` runs the plans
themselves. Every fact used is equal on all ranks, or they would choose differently. In the formulas H is
the number of hosts, k = ceil(log2 H), m what a lane carries, beta its time for a byte: lanes share the card
of their host, and a rank cannot send faster than it copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distdbg.ops.call import Kind
from distdbg.runtime.plan.link import NetworkLink
from distdbg.runtime.plan.names import split_name
from distdbg.runtime.plan.problem import Topology


@dataclass(frozen=True, slots=True)
class _Case:
    """One algorithm at work."""

    link: NetworkLink
    hosts: int
    lanes: int
    largest: int
    size: int
    piece_nbytes: int
    #: What a lane carries.
    m: float

    @property
    def k(self) -> int:
        return (self.hosts - 1).bit_length()

    @property
    def beta_s(self) -> float:
        return max(self.lanes * self.link.byte_s, self.link.rank_byte_s)

    @property
    def round_s(self) -> float:
        """A message without bytes, sent and received."""
        return self.link.latency_s + 2 * self.link.message_s

    @property
    def others(self) -> float:
        """The part of all data that comes from other hosts."""
        return 1 - 1 / self.hosts

    @property
    def rest(self) -> int:
        """Whether the number of hosts is no power of two."""
        return int(self.hosts & (self.hosts - 1) != 0)

    def pairs_s(self, ways: int) -> float:
        """Handing data to the host that stands for two, and back."""
        return self.rest * ways * (self.round_s + self.m * self.beta_s)

    def fold_s(self) -> float:
        return self.m * self.link.fold_byte_s

    def tree_s(self, ways: int) -> float:
        """The first piece through two binary trees, there, or there and back; then the others."""
        first = self.round_s + self.piece_nbytes * self.beta_s
        # Each of two hosts is the leaf of one tree and the root of the other.
        passes = ways if self.hosts > 2 else 1
        return ways * (self.k + 1) * first + passes * self.m * self.beta_s + self.copy_s(0.5)

    def copy_s(self, times: float) -> float:
        """What is copied to scratch memory before it is sent, and from there in the end."""
        return times * self.m * self.link.copy_byte_s


Formula = Callable[[_Case], float]

_FORMULAS: dict[tuple[Kind, str], Formula] = {
    (Kind.ALL_REDUCE, "doubling"): lambda c: (
        c.k * (c.round_s + c.m * c.beta_s + c.fold_s()) + c.copy_s(2) + c.pairs_s(2)
    ),
    (Kind.ALL_REDUCE, "halving"): lambda c: (
        2 * c.k * c.round_s
        + 2 * c.others * c.m * c.beta_s
        + c.fold_s()
        + c.copy_s(0.5 + 1 / c.hosts)
        + c.pairs_s(2)
    ),
    (Kind.ALL_REDUCE, "ring"): lambda c: (
        2 * (c.hosts - 1) * c.round_s
        + 2 * c.others * c.m * c.beta_s
        + c.fold_s()
        + c.copy_s(2 / c.hosts)
    ),
    (Kind.ALL_REDUCE, "double_tree"): lambda c: c.tree_s(2) + c.fold_s(),
    (Kind.BROADCAST, "binomial"): lambda c: c.k * (c.round_s + c.m * c.beta_s),
    (Kind.BROADCAST, "double_tree"): lambda c: c.tree_s(1),
    (Kind.REDUCE, "binomial"): lambda c: c.k * (c.round_s + c.m * c.beta_s + c.fold_s()),
    (Kind.REDUCE, "double_tree"): lambda c: c.tree_s(1) + c.fold_s(),
    (Kind.REDUCE, "ring"): lambda c: (
        c.hosts * c.round_s + 2 * c.others * c.m * c.beta_s + c.fold_s()
    ),
    (Kind.REDUCE, "halving"): lambda c: (
        (c.k + 1) * c.round_s
        + c.hosts * c.link.message_s
        + 2 * c.others * c.m * c.beta_s
        + c.fold_s()
        + c.pairs_s(1)
    ),
    (Kind.ALL_GATHER, "ring"): lambda c: (
        (c.hosts - 1) * (c.round_s + 2 * c.link.message_s * (c.size / c.hosts / c.lanes - 1))
        + c.others * c.m * c.beta_s
    ),
    (Kind.ALL_GATHER, "bruck"): lambda c: (
        c.k * c.round_s + c.others * c.m * c.beta_s + c.m * c.link.copy_byte_s
    ),
    (Kind.GATHER, "linear"): lambda c: (
        c.round_s + c.others * (c.size * c.link.message_s + c.m * c.beta_s)
    ),
    (Kind.GATHER, "binomial"): lambda c: (
        c.k * c.round_s + c.others * c.m * c.beta_s + 2 * c.m * c.link.copy_byte_s
    ),
    (Kind.REDUCE_SCATTER, "pairwise"): lambda c: (
        c.round_s + 2 * (c.hosts - 2) * c.link.message_s + c.others * c.m * c.beta_s + c.fold_s()
    ),
    (Kind.REDUCE_SCATTER, "ring"): lambda c: (
        (c.hosts - 1) * c.round_s + c.others * c.m * c.beta_s + c.fold_s()
    ),
    (Kind.REDUCE_SCATTER, "halving"): lambda c: (
        (c.k + c.rest) * c.round_s
        + c.others * c.m * c.beta_s
        + c.fold_s()
        + c.m * c.link.copy_byte_s
        + c.pairs_s(1)
    ),
    (Kind.ALL_TO_ALL, "pairwise"): lambda c: (
        c.round_s + 2 * c.size * c.link.message_s + c.others * c.m * c.beta_s
    ),
    (Kind.ALL_TO_ALL, "bruck"): lambda c: (
        c.k * (c.round_s + c.m / 2 * (c.beta_s + 2 * c.link.copy_byte_s))
    ),
}
for _name in ("linear", "binomial"):
    _FORMULAS[Kind.SCATTER, _name] = _FORMULAS[Kind.GATHER, _name]

#: Kinds whose lanes share the work inside of a host; the others copy the same for any lanes.
_FOLDS = frozenset({Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER})


def gate_s(topology: Topology, nbytes: float = 0.0, largest: float = 0.0) -> float:
    """A gate over all hosts that hands on `nbytes` of all ranks together, `largest` of one."""
    link, layout = topology.link, topology.layout
    rounds = (len(layout.hosts) - 1).bit_length()
    data = float(rounds * link.header_nbytes)
    if nbytes:
        # Every host takes in what all others have, and what one rank has is handed on in every round.
        from_others = nbytes * (1 - 1 / len(layout.hosts))
        data = max(layout.size * link.header_nbytes + from_others, rounds * largest)
    return (
        2 * link.host_gate_s
        + rounds * (link.latency_s + 2 * link.message_s)
        + data * max(link.byte_s, link.rank_byte_s)
    )


def estimate_s(kind: Kind, name: str, nbytes: float, topology: Topology) -> float:
    """The time of an op of `nbytes`, what all blocks of the largest side have together."""
    link, layout = topology.link, topology.layout
    if name == "slots" and kind is Kind.REDUCE_SCATTER and len(layout.hosts) == layout.size == 2:
        # Each publishes the other's half, and folds it in memory of its own: see mirror.py.
        work_s = nbytes / 2 * (2 * link.slot_copy_byte_s + link.slot_fold_byte_s)
        return gate_s(topology, max(nbytes, 1.0), nbytes / 2) + work_s
    if name == "slots":
        published = nbytes * layout.size if kind in _FOLDS else nbytes
        fold_s = (
            published * link.slot_fold_byte_s if kind in _FOLDS else nbytes * link.slot_copy_byte_s
        )
        alone = kind in (Kind.BROADCAST, Kind.SCATTER)
        largest = published if alone else published / layout.size
        return gate_s(topology, max(published, 1.0), largest) + fold_s
    algorithm, leaders = split_name(name)
    one_rank = leaders or kind in (Kind.GATHER, Kind.SCATTER)
    lanes = 1 if one_rank else layout.lanes
    case = _Case(
        link,
        len(layout.hosts),
        lanes,
        layout.largest,
        layout.size,
        min(topology.piece_nbytes, max(int(nbytes / lanes / 16), 1)),
        # Every rank carries its own part of an all_to_all.
        nbytes if kind is Kind.ALL_TO_ALL else nbytes / lanes,
    )
    inside_s = 0.0
    if layout.largest > 1:
        inside_s = 2 * link.host_gate_s + 2 * nbytes * link.copy_byte_s
        if kind in _FOLDS:
            inside_s += case.m * layout.largest * link.fold_byte_s
    # The first messages of hosts with one rank go with the gate: see choose.py.
    early_s = link.latency_s if layout.largest == 1 else 0.0
    return gate_s(topology) + inside_s + _FORMULAS[kind, algorithm](case) - early_s
