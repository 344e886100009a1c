"""All rows that one node knows, from its own host and from its links; whom to believe of each host. Pure.

A host may be told of by two links for a while, when it or a node above it has found another way up. The
link that tells of it with the higher epoch is believed, of two equal ones the later. When nobody tells of
it any more it is lost; its rows stay, as old as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from distdbg.hosts.status_rows import (
    HOST_SCHEMA,
    LOST,
    RANK_SCHEMA,
    HostStatusRow,
    RankStatusRow,
    is_news,
    is_slight,
)
from distdbg.hosts.updates import Updates

#: The link that is no link: the host itself.
OWN: Final = -1


@dataclass(slots=True)
class GatheredPart:
    """What came over one link."""

    hosts: dict[int, HostStatusRow] = field(default_factory=dict)
    ranks: dict[int, RankStatusRow] = field(default_factory=dict)
    ranks_of: dict[int, set[int]] = field(default_factory=dict)
    claimed: dict[int, int] = field(default_factory=dict)
    """Node -> when it was last claimed anew, as a number that grows."""


class Gathering:
    """The rows that are believed, and what of them has still to go up."""

    def __init__(self, *, is_root: bool = False) -> None:
        self._is_root = is_root  # nothing has to go up
        self.hosts: dict[int, HostStatusRow] = {}
        self.ranks: dict[int, RankStatusRow] = {}
        self.host_updates = Updates(HOST_SCHEMA)
        self.rank_updates = Updates(RANK_SCHEMA)
        self.links: dict[int, GatheredPart] = {OWN: GatheredPart()}
        self._believed: dict[int, int] = {}
        self._claims = 0
        self.version = 0
        """Grows when a host came, went or did what it was ordered."""

    def add_link(self, link: int) -> None:
        self.links[link] = GatheredPart()

    def drop_link(self, link: int, now_ns: int) -> None:
        """What only it told of is lost from now on."""
        reported = self.links.pop(link)
        for node in reported.hosts:
            if self._believed.get(node) == link:
                self._choose(node, now_ns)

    def link_to(self, node: int) -> int | None:
        """The link that is believed of it, so the way there; OWN for this host, None: it is lost."""
        host = self.hosts.get(node)
        return None if host is None or host.is_lost else self._believed.get(node)

    def take_hosts(self, link: int, hosts: Mapping[int, HostStatusRow], now_ns: int) -> None:
        """Hosts as this link tells of them."""
        reported = self.links[link]
        for node, host in hosts.items():
            before = reported.hosts.get(node)
            reported.hosts[node] = host
            if (
                before is None
                or before.epoch != host.epoch
                or (before.is_lost and not host.is_lost)
            ):
                self._claims += 1
                reported.claimed[node] = self._claims
            self._choose(node, now_ns)

    def take_ranks(self, link: int, ranks: Mapping[int, RankStatusRow]) -> None:
        """Ranks as this link tells of them."""
        reported = self.links[link]
        for rank in ranks.keys() - reported.ranks.keys():
            reported.ranks_of.setdefault(ranks[rank].node, set()).add(rank)
        reported.ranks.update(ranks)
        believed = {
            node
            for node in {row.node for row in ranks.values()}
            if self._believed.get(node) == link
        }
        if not believed:
            return
        known, updates = self.ranks, self.rank_updates
        if self._is_root:
            known.update((rank, row) for rank, row in ranks.items() if row.node in believed)
            return
        for rank, row in ranks.items():
            if row.node not in believed:
                continue
            old = known.get(rank)
            known[rank] = row
            if old is None or not is_slight(row, old):
                updates.mark(rank, is_news=is_news(row, old))
            elif row != old:
                updates.mark(rank, is_slight=True)

    def _choose(self, node: int, now_ns: int) -> None:
        """Choose the link whose rows of this host count from now on."""
        believed = self._believed.get(node)
        telling = [
            (
                not reported.hosts[node].is_lost,
                reported.hosts[node].epoch,
                reported.claimed.get(node, 0),
                link,
            )
            for link, reported in self.links.items()
            if node in reported.hosts
        ]
        if telling:
            best = max(telling)[3]
            host = self.links[best].hosts[node]
        else:
            best = None
            host = self.hosts[node]
            if not host.is_lost:
                host = host._replace(is_lost=LOST, since_ns=now_ns)
        old = self.hosts.get(node)
        if old is not None and host.is_lost and old.is_lost:
            host = host._replace(since_ns=min(old.since_ns, host.since_ns))
        if best is None:
            self._believed.pop(node, None)
        elif best != believed:
            self._believed[node] = best
            reported = self.links[best]
            ranks = reported.ranks_of.get(node, ())
            self.take_ranks(best, {rank: reported.ranks[rank] for rank in sorted(ranks)})
        if host != old:
            self.hosts[node] = host
            if not self._is_root:
                self.host_updates.mark(node, is_news=old is None or old[:3] != host[:3])
            self.version += 1
