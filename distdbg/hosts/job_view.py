"""The view of a node: all hosts at the root, elsewhere the hosts below. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distdbg.follow.status import RankStatus
from distdbg.hosts.status_rows import LOST, HostStatusRow, RankStatusRow, to_status


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    node: int
    host: str
    ranks: tuple[int, ...]
    is_lost: bool
    """Nobody hears its agent: the host, the agent or the network is gone. For a moment (see since_s)
    this is also said of hosts below an agent that died, until they have found another way."""
    has_left: bool
    """Its agent has ended in good order."""
    since_s: float
    """How long it has been so, or how long it has been in touch."""
    done: int
    """The number of the last order that it has carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """All that is known at one moment; the rows of a lost host are as old as that."""

    hosts: tuple[HostView, ...]
    ranks: tuple[RankStatus, ...]

    @property
    def lost(self) -> tuple[HostView, ...]:
        return tuple(host for host in self.hosts if host.is_lost)


def make_view(
    hosts: Mapping[int, HostStatusRow], ranks: Mapping[int, RankStatusRow], now_ns: int
) -> JobView:
    """The rows as a person wants them, by node and by rank."""
    ranks_of: dict[int, list[int]] = {}
    statuses = []
    for rank in sorted(ranks):
        row = ranks[rank]
        host = hosts.get(row.node)
        ranks_of.setdefault(row.node, []).append(rank)
        try:
            statuses.append(to_status(rank, row, host.host if host else "?", now_ns))
        except ValueError:
            continue  # of an agent that knows more states than this one
    return JobView(
        hosts=tuple(
            HostView(
                node=node,
                host=row.host,
                ranks=tuple(ranks_of.get(node, ())),
                is_lost=row.is_lost == LOST,
                has_left=row.is_lost > LOST,
                since_s=max(0, now_ns - row.since_ns) / 1e9,
                done=row.done,
            )
            for node, row in sorted(hosts.items())
        ),
        ranks=tuple(statuses),
    )
