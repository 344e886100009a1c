"""Finds which ranks of a group share memory: those of one kernel and one pid namespace. Pure.

A container with a pid namespace of its own counts as a host. Names are no criterion: several hosts may have
one, and one host several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from distdbg.runtime.rendezvous.process import ProcessIdentity

#: The group ranks of each host, both in ascending order.
Hosts: TypeAlias = tuple[tuple[int, ...], ...]


def find_hosts(members: Sequence[ProcessIdentity], is_each_alone: bool = False) -> Hosts:
    """The hosts of a group, numbered by their first ranks. `is_each_alone`: a host for every rank."""
    if is_each_alone:
        return tuple((rank,) for rank in range(len(members)))
    ranks: dict[tuple[str, int], list[int]] = {}
    for rank, member in enumerate(members):
        ranks.setdefault((member.boot_id, member.pid_namespace), []).append(rank)
    return tuple(tuple(each) for each in ranks.values())


def name_hosts(members: Sequence[ProcessIdentity]) -> Callable[[int], str | None]:
    """What messages call the host of a rank; nothing where all are on one."""
    if len({member.host for member in members}) < 2:
        return lambda rank: None
    names = [member.host for member in members]
    return lambda rank: names[rank] if 0 <= rank < len(names) else None


def is_one_machine(members: Sequence[ProcessIdentity]) -> bool:
    """Whether all reach each other's loopback interface."""
    first = members[0]
    return bool(first.boot_id and first.net_namespace) and all(
        (member.boot_id, member.net_namespace) == (first.boot_id, first.net_namespace)
        for member in members
    )


def host_of_rank(hosts: Hosts) -> list[int]:
    """Return the number of the host of each group rank."""
    of_rank = {rank: number for number, ranks in enumerate(hosts) for rank in ranks}
    return [of_rank[rank] for rank in range(len(of_rank))]
