"""Finds where missing ranks are: what a timeout can report about them beyond their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from distdbg.runtime.net.hosts import name_hosts

if TYPE_CHECKING:
    from distdbg.runtime.groups.group_state import GroupState

#: More ranks than these are counted only.
SHOWN = 8


def where_is(group: GroupState, group_rank: int) -> str | None:
    """Return what one rank does now, or that its process is gone; None where nothing is known."""
    parts = [end_of(group, group_rank), recorded(group, group_rank)]
    return "; ".join(part for part in parts if part is not None) or None


def doing(group: GroupState, group_rank: int) -> str | None:
    """Return where the agent saw the rank last: 'asleep in load() at slp.py:7'; None: it did not."""
    folder = group.world.run_folder
    if folder is None or group_rank >= len(group.members):
        return None
    rank = group.ranks[group_rank]
    try:
        since_ns = import_module("distdbg.record.rank_words").last_end_of(folder, rank)
        ask = import_module("distdbg.record.observations").phrase_of_rank
        phrase = ask(folder, rank, since_ns)
    except Exception:  # noqa: BLE001 - as below
        return None
    return None if phrase is None else str(phrase)


def end_of(group: GroupState, group_rank: int) -> str | None:
    """Return how the process of a rank ended, if it has."""
    if group_rank >= len(group.members):
        return None
    watched = group.members[group_rank].watched
    if watched is None or not watched.is_dead():
        return None
    return f"its process is gone, it {watched.how()}"


def recorded(group: GroupState, group_rank: int) -> str | None:
    """Return what a rank's record says of its last op."""
    folder = group.world.run_folder
    if folder is None:
        return None
    try:
        ask = import_module("distdbg.record.rank_words").where_is
        place = ask(folder, group.ranks[group_rank])
    except Exception:  # noqa: BLE001 - a record that cannot be read must not hide the timeout
        return None
    return None if place is None else str(place)


def issued(group: GroupState, group_rank: int, name: str) -> int | None:
    """Return how many collectives a rank's record has of a group; None where it has no such group."""
    return _ask(group, group_rank, name, "issued_on")


def waits_in(group: GroupState, group_rank: int, name: str) -> int | None:
    """Return the number of the collective of a group that a rank waits in, by its record; None: in none."""
    return _ask(group, group_rank, name, "waits_in")


def _ask(group: GroupState, group_rank: int, name: str, function: str) -> int | None:
    folder = group.world.run_folder
    if folder is None:
        return None
    try:
        ask = getattr(import_module("distdbg.record.rank_words"), function)
        count = ask(folder, group.ranks[group_rank], name)
    except Exception:  # noqa: BLE001 - as above
        return None
    return None if count is None else int(count)


def host_of(group: GroupState, group_rank: int) -> str | None:
    """Return the host of a rank, where the members are on several."""
    return name_hosts([life.process for life in group.members])(group_rank)


def where_are(group: GroupState, group_ranks: Sequence[int]) -> list[str]:
    """Return a line for each rank of which something is known."""
    lines = []
    for group_rank in group_ranks[:SHOWN]:
        name, host = f"rank {group.ranks[group_rank]}", host_of(group, group_rank)
        place = where_is(group, group_rank)
        if place is not None:
            lines.append(f"{name} on host {host}: {place}" if host else f"{name}: {place}")
        elif host is not None:
            lines.append(f"{name} is on host {host}")
    if len(group_ranks) > SHOWN:
        lines.append(f"and {len(group_ranks) - SHOWN} more ranks")
    return lines
