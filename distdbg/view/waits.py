"""Waits between ranks, a row for each, of a job that runs as of a replay. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from distdbg.diagnose.finding import Edge, FindingKind, Verdict
from distdbg.diagnose.ops import NEVER
from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import GroupRow, RankRow, WaitRow


def wait_rows(
    edges: Iterable[Edge],
    verdict: Verdict | None,
    ranks: Mapping[int, RankRow],
    *,
    blocked: Collection[int] = (),
    groups: Sequence[GroupRow] = (),
) -> tuple[WaitRow, ...]:
    """The waits that were judged, by rank.

    `blocked`: who can never go on by whoever judged the waits; it counts until a verdict has found the
    deadlock. `groups` tell whom ranks wait for whose waits nobody has judged yet.
    """
    stuck = deadlocked_ranks(verdict) or blocked
    found = [
        WaitRow(
            rank=edge.rank,
            on=edge.on,
            is_any=edge.is_any,
            op=edge.text,
            site=edge.site,
            can_go_on=edge.rank not in stuck,
            since=_since(edge, ranks.get(edge.rank)),
        )
        for edge in edges
    ]
    judged = {row.rank for row in found}
    for row in ranks.values():
        if row.state is RankState.WAITING and row.rank not in judged:
            behind = _behind(row, groups)
            if behind:
                found.append(
                    WaitRow(rank=row.rank, on=behind, op=row.op, site=row.site, since=row.state_at)
                )
    return tuple(sorted(found, key=lambda row: row.rank))


def deadlocked_ranks(verdict: Verdict | None) -> frozenset[int]:
    """The ranks that are a deadlock; not those that only wait for one of them."""
    return frozenset(
        rank
        for one in (verdict.findings if verdict is not None else ())
        if one.kind is FindingKind.DEADLOCK
        for rank in one.deadlocked
    )


def _since(edge: Edge, row: RankRow | None) -> float | None:
    """Since when the thread of an edge waits, or else the rank."""
    if edge.since_ns is not None and edge.since_ns != NEVER:
        return edge.since_ns / 1e9
    return row.state_at if row is not None and row.state is RankState.WAITING else None


def _behind(row: RankRow, groups: Sequence[GroupRow]) -> tuple[int, ...]:
    """The ranks that have not issued the collective that a rank waits in."""
    for group in groups:
        seq = group.issued.get(row.rank)
        if seq is None or seq <= group.ended.get(row.rank, 0):
            continue
        if f"#{seq} on group '{group.label}'" in row.op:
            known = group.issued
            return tuple(r for r in group.ranks if r != row.rank and known.get(r, seq) < seq)
    return ()
