"""One rank's place in a group over several hosts, and the verbs that need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.runtime.plan.build import Place, StepBuilder, shifted
from distdbg.runtime.plan.cut import alignment, cut_rounds
from distdbg.runtime.plan.problem import Problem, Topology

#: A place and its length.
Part = tuple[Place, int]

#: Pieces of a tree are not shorter: the time of a message is latency then.
_LEAST_PIECE_NBYTES = 16 << 10


class Shares:
    """`nbytes` in equal parts on whole elements; begins are computed, for there may be many."""

    __slots__ = ("_share", "nbytes", "parts")

    def __init__(self, nbytes: int, parts: int, itemsize: int) -> None:
        align = alignment(nbytes // parts, itemsize)
        self.nbytes = nbytes
        self.parts = parts
        self._share = -(-nbytes // (parts * align)) * align

    def begin(self, i: int) -> int:
        """Where part i begins; where the last one ends for i = parts."""
        return min(i * self._share, self.nbytes)

    def length(self, i: int) -> int:
        """How long part i is."""
        return self.begin(i + 1) - self.begin(i)


class LanePosition:
    """The rank, its host, its lane and the steps made so far."""

    __slots__ = (
        "count",
        "host",
        "hosts",
        "lane",
        "lanes",
        "mates",
        "place",
        "problem",
        "rank",
        "steps",
        "topology",
    )

    def __init__(self, problem: Problem, topology: Topology, *, leaders: bool = False) -> None:
        layout = topology.layout
        self.problem = problem
        self.topology = topology
        self.steps = StepBuilder()
        self.rank = problem.rank
        self.hosts = layout.hosts
        #: How many hosts there are.
        self.count = len(layout.hosts)
        self.host = layout.host_of(self.rank)
        self.place = layout.place_of(self.rank)
        #: The ranks of this host, this one too.
        self.mates: Sequence[int] = self.hosts[self.host]
        self.lanes = 1 if leaders else layout.lanes
        #: The lane that this rank carries, or -1.
        self.lane = self.place if self.place < self.lanes else -1

    @property
    def is_alone(self) -> bool:
        """Whether every host has one rank, so that nothing happens inside of hosts."""
        return self.topology.layout.largest == 1

    def member(self, host: int) -> int:
        """The rank that carries this rank's lane on a host."""
        return self.hosts[host % self.count][self.lane]

    def others_here(self) -> list[int]:
        """The other ranks of this host, beginning with the next one."""
        at = self.place
        return [*self.mates[at + 1 :], *self.mates[:at]]

    def lane_of(self, rank: int) -> int:
        """The lane in which the block of a rank travels; ranks beyond the lanes share them."""
        return self.topology.layout.place_of(rank) % self.lanes

    def bundle(self, host: int, lane: int) -> Sequence[int]:
        """The ranks of a host whose blocks travel in a lane."""
        return self.hosts[host % self.count][lane :: self.lanes]

    def pieces(self, nbytes: int, most: int | None = None) -> list[tuple[int, int]]:
        """Cut a message: (offset, nbytes)."""
        return cut_rounds(nbytes, most or self.topology.piece_nbytes, self.problem.itemsize)

    def cut(self, parts: Sequence[Part]) -> Iterator[Part]:
        """Cut every part."""
        for place, nbytes in parts:
            for offset, length in self.pieces(nbytes):
                yield shifted(place, offset), length

    def tree_piece(self, nbytes: int) -> int:
        """How long the pieces of a pipeline over a tree of hosts are best."""
        if self.count == 2:
            return nbytes  # nobody passes anything on
        link = self.topology.link
        depth = max(self.count.bit_length(), 1)
        best = (nbytes * link.latency_s / (link.byte_s * depth)) ** 0.5
        most = self.topology.piece_nbytes
        return max(min(1 << int(best).bit_length(), most), min(_LEAST_PIECE_NBYTES, most))
