"""Places the ranks of a group: on which host each is, at which place of it, and in which lane.

A *lane* is one rank of each host: lane i is carried by the i-th rank of every host, so there are as
many lanes as the smallest host has ranks. Data between hosts are shared out over the lanes, so that
several ranks of a host send and fold at the same time. Every answer takes constant time: plans for tens
of thousands of ranks are made from it.
"""

from __future__ import annotations

from collections.abc import Sequence


class HostLayout:
    """The hosts of a group; `hosts` holds the group ranks of each, all in ascending order."""

    __slots__ = ("_host_of", "_place_of", "hosts", "lanes", "largest", "size")

    def __init__(self, hosts: Sequence[tuple[int, ...]]) -> None:
        self.hosts = hosts
        self.size = sum(len(ranks) for ranks in hosts)
        self._host_of = [0] * self.size
        self._place_of = [0] * self.size
        for host, ranks in enumerate(hosts):
            for place, rank in enumerate(ranks):
                self._host_of[rank] = host
                self._place_of[rank] = place
        sizes = [len(ranks) for ranks in hosts]
        self.lanes = min(sizes, default=1)
        #: The ranks of the host that has the most.
        self.largest = max(sizes, default=1)

    def host_of(self, rank: int) -> int:
        """The number of the rank's host."""
        return self._host_of[rank]

    def place_of(self, rank: int) -> int:
        """The rank's number among those of its host."""
        return self._place_of[rank]


def make_hosts(size: int, hosts: int) -> tuple[tuple[int, ...], ...]:
    """Ranks 0 to size-1 on that many hosts, one after the other, the first hosts with one more."""
    if not 1 <= hosts <= size:
        raise ValueError(f"{size} ranks do not fit {hosts} hosts")
    each, more = divmod(size, hosts)
    begins = [host * each + min(host, more) for host in range(hosts + 1)]
    return tuple(tuple(range(begins[h], begins[h + 1])) for h in range(hosts))
