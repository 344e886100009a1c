"""Which ranks have not called the op that others wait in, from their rows alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from distdbg.diagnose.finding import FindingKind
from distdbg.record.rank_state import RankState
from distdbg.tui.verdict import root_of
from distdbg.view.snapshot import GroupRow, RankRow, Snapshot

_OP: Final = re.compile(
    r"(?P<kind>[a-z_]+)[^#]* #(?P<seq>\d+) on group '(?P<group>.*?)'(?: \(.*)?$"
)


def not_called(snapshot: Snapshot) -> dict[tuple[str, str], tuple[int, ...]]:
    """By a group's name and a kind, the ranks that others wait for in such an op now."""
    by_label: dict[str, list[GroupRow]] = {}
    for group in snapshot.groups:
        by_label.setdefault(group.label, []).append(group)
    found: dict[tuple[str, str], set[int]] = {}
    seen: set[tuple[str, str]] = set()
    for row in snapshot.ranks.values():
        if row.state is not RankState.WAITING or (match := _OP.match(row.op)) is None:
            continue
        for group in by_label.get(match["group"], ()):
            key = group.name, row.op
            if row.rank not in group.ranks or key in seen:
                continue
            seen.add(key)
            late = _behind(group, snapshot.ranks, int(match["seq"]))
            found.setdefault((group.name, match["kind"]), set()).update(late)
    for key, absent in _by_verdict(snapshot, by_label):
        found.setdefault(key, set()).update(absent)
    return {key: tuple(sorted(absent)) for key, absent in found.items() if absent}


def _by_verdict(
    snapshot: Snapshot, by_label: Mapping[str, list[GroupRow]]
) -> Iterator[tuple[tuple[str, str], tuple[int, ...]]]:
    """What a rank never called by the verdict, also when nobody waits for it any more."""
    root = root_of(snapshot.verdict) if snapshot.lines else None
    if root is None or root.kind is not FindingKind.MISSING_RANK:
        return
    for edge in root.edges:
        match = _OP.match(edge.text)
        for group in by_label.get(match["group"], ()) if match is not None else ():
            late = tuple(rank for rank in root.ranks if rank in group.ranks)
            if match is not None:
                yield (group.name, match["kind"]), late


def _behind(group: GroupRow, rows: Mapping[int, RankRow], seq: int) -> list[int]:
    """Members that have not called this collective; not those of which nothing is known."""
    late = []
    for rank in group.ranks:
        row = rows.get(rank)
        seqs = dict(row.seqs) if row is not None else {}
        called = group.issued.get(rank, seqs.get(group.label))
        if called is not None and called < seq and seqs.get(group.label, called) < seq:
            late.append(rank)
    return late
