"""Ranks as rows of hosts: what most of a host's ranks do, and which differ. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.errors import format_ranks
from distdbg.record.rank_state import RankState
from distdbg.tui.cells import Cell, Tone, age, is_fault, nbytes, one_line, share, tone_of
from distdbg.tui.rank_roles import MARK, NOBODY, RankRoles
from distdbg.tui.table import TableColumn
from distdbg.view.snapshot import RankRow

#: The same places as the columns of ranks have, as far as a host has such a thing.
HOST_COLUMNS: Final = (
    TableColumn(title="host", width=12),
    TableColumn(title="ranks", width=11),
    TableColumn(title="state", width=22),
    TableColumn(title="for", width=10, is_right=True),
    TableColumn(title="most are in", width=20, grows=True),
    TableColumn(title="behind", width=9, is_right=True, from_width=90),
    TableColumn(title="progress", width=10, is_right=True, from_width=100),
    TableColumn(title="cpu", width=6, is_right=True),
    TableColumn(title="memory", width=9, is_right=True, from_width=96),
    TableColumn(title="gpu", width=5, is_right=True, from_width=140),
)


@dataclass(slots=True)
class HostSum:
    host: str
    ranks: list[int] = field(default_factory=list)
    states: Counter[RankState] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    since: dict[RankState, float] = field(default_factory=dict)
    """By state, since when the first of its ranks is in it."""
    moved_at: float = 0.0
    """The last progress of the rank that has waited longest for it."""
    behind: int = 0
    behind_on: str = ""
    cpu: float | None = None
    rss_nbytes: int | None = None
    gpu: float | None = None

    @property
    def worst(self) -> RankState:
        """A fault if there is one, else what most are in."""
        return min(self.states, key=lambda state: (not is_fault(state), -self.states[state]))

    @property
    def faults(self) -> int:
        return sum(count for state, count in self.states.items() if is_fault(state))


def sum_up(rows: Iterable[RankRow], medians: Mapping[str, int]) -> dict[str, HostSum]:
    """Sum up ranks by host, in the order of their ranks."""
    found: dict[str, HostSum] = {}
    for row in rows:
        one = found.get(row.host)
        if one is None:
            one = found[row.host] = HostSum(row.host)
        one.ranks.append(row.rank)
        state = row.state
        one.states[state] += 1
        if row.op or row.why:
            one.ops[row.op or row.why] += 1
        since = one.since.get(state)
        if since is None or row.state_at < since:
            one.since[state] = row.state_at
        if row.moved_at and (not one.moved_at or row.moved_at < one.moved_at):
            one.moved_at = row.moved_at
        for name, seq in row.seqs:
            off = seq - medians.get(name, seq)
            if off < one.behind:
                one.behind, one.behind_on = off, name
        if row.cpu is not None:
            one.cpu = (one.cpu or 0.0) + row.cpu
        if row.rss_nbytes is not None:
            one.rss_nbytes = (one.rss_nbytes or 0) + row.rss_nbytes
        if row.gpu is not None:
            one.gpu = max(one.gpu or 0.0, row.gpu)
    return found


def host_cells(one: HostSum, now: float, parts: RankRoles = NOBODY) -> Sequence[Cell]:
    """The cells in the order of `HOST_COLUMNS`."""
    worst = one.worst
    tone = tone_of(worst)
    if not parts.causes.isdisjoint(one.ranks):
        tone = Tone.FAULT
    elif not parts.victims.isdisjoint(one.ranks):
        tone = Tone.VICTIM
    mark = f"{MARK} " if tone is Tone.FAULT and parts.causes else ""
    order = sorted(one.states, key=lambda state: (not is_fault(state), -one.states[state], state))
    states = "  ".join(f"{one.states[state]} {state}" for state in order)
    [(op, count)] = one.ops.most_common(1) or [("", 0)]
    more = len(one.ranks) - count
    return (
        Cell(mark + (one_line(one.host) or "?"), tone if mark else Tone.PLAIN),
        Cell(format_ranks(one.ranks, 3), Tone.MUTED),
        Cell(states, tone),
        Cell(age(now - one.since[worst])),
        Cell(one_line(op) + (f" ({more} not)" if op and more else "")),
        Cell(f"{-one.behind} {one_line(one.behind_on)}" if one.behind else "", Tone.MUTED),
        Cell(age(now - one.moved_at) if one.moved_at else ""),
        Cell(share(one.cpu)),
        Cell(nbytes(one.rss_nbytes)),
        Cell(share(one.gpu)),
    )


def host_sort_key(one: HostSum, title: str) -> tuple[float, str]:
    """What hosts are sorted by; those that need a look first."""
    values: dict[str, float] = {
        "ranks": min(one.ranks),
        "state": -one.faults,
        "for": one.since[one.worst],
        "behind": one.behind,
        "progress": one.moved_at,
        "cpu": -(one.cpu or 0.0),
        "memory": -(one.rss_nbytes or 0),
        "gpu": -(one.gpu or 0.0),
    }
    op = next(iter(one.ops), "") if title == "most are in" else one.host
    return values.get(title, 0.0), op
