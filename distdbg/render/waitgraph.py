"""Draws who waits for whom with few nodes: ranks that wait in one op for the same ranks are one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Edge, Finding, FindingKind, Verdict
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag
from distdbg.render.where import first_frame, gave_up, place_of, where_text
from distdbg.render.words import site_text

MAX_NODES: Final = 24
_MAX_ALONE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeRanks:
    """Ranks that are alike."""

    ranks: tuple[int, ...]
    text: str
    """The op that they wait in; where one is that waits in none; ''."""
    site: str
    is_core: bool
    on: tuple[int, ...]
    """Indexes of nodes."""
    is_any: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGraphPicture:
    """The nodes, those to blame first; `left_out` more are not there."""

    nodes: tuple[AlikeRanks, ...]
    left_out: int = 0


def make_wait_graph(session: Session, verdict: Verdict) -> WaitGraphPicture:
    """Make the graph of the edges that findings have, and of the ops that other ranks are in, or gave up."""
    edges = {edge.rank: edge for edge in reversed(list(_edges(verdict.findings)))}
    absent: dict[tuple[int, int], tuple[int, ...]] = {}
    for rank in session.ranks:
        if rank not in edges:
            edge = _edge_now(session, rank, absent)
            if edge is not None:
                edges[rank] = edge
    core = set(verdict.root.ranks) if verdict.root is not None else set()
    members = sorted({*edges, *(on for edge in edges.values() for on in edge.on)})
    classes: dict[object, list[int]] = {}
    for rank in members:
        classes.setdefault(_class_of(rank, edges.get(rank), core), []).append(rank)
    ordered = sorted(classes.values(), key=lambda c: (core.isdisjoint(c), -len(c), c))
    kept = ordered[:MAX_NODES]
    node_of = {rank: i for i, ranks in enumerate(kept) for rank in ranks}
    nodes = []
    for ranks in kept:
        edge = edges.get(ranks[0])
        on = {node_of[r] for r in edge.on if r in node_of} if edge else set()
        nodes.append(
            AlikeRanks(
                ranks=tuple(ranks),
                text=edge.text if edge else where_text(session, ranks[0]) * (len(ranks) == 1),
                site=edge.site if edge else "",
                is_core=not core.isdisjoint(ranks),
                on=tuple(sorted(on)),
                is_any=bool(edge and edge.is_any),
            )
        )
    return WaitGraphPicture(nodes=tuple(nodes), left_out=len(ordered) - len(kept))


def _edges(findings: Iterable[Finding]) -> Iterator[Edge]:
    """Those of the root cause first; a risk is no wait."""
    for finding in findings:
        if finding.kind is not FindingKind.ORDER_INVERSION:
            yield from finding.edges
            yield from _edges(finding.follows)


def _edge_now(
    session: Session, rank: int, absent: dict[tuple[int, int], tuple[int, ...]]
) -> Edge | None:
    place = place_of(session, rank)
    log = session.ranks[rank]
    if place is None or not (place.is_in or gave_up(log) == place.op.at):
        return None
    ops, at = log.ops, place.op.at
    group, seq = ops.group[at], ops.seq[at]
    if ops.flags[at] & Flag.ASIDE or group == NONE:
        return None
    if ops.flags[at] & Flag.MESSAGE:
        on: tuple[int, ...] = (ops.peer[at],) if ops.peer[at] != NONE else ()
    else:
        if (group, seq) not in absent:
            absent[group, seq] = tuple(_absent(session, group, seq))
        on = absent[group, seq]
    if not on:
        return None
    site = site_text(first_frame(session, place.stack))
    return Edge(rank=rank, on=on, op=place.op, text=session.name_of(OpRef(rank, at)), site=site)


def _absent(session: Session, group: int, seq: int) -> Iterator[int]:
    for rank in session.members(group):
        log = session.ranks.get(rank)
        far = log.progress.get(group) if log is not None else None
        if log is None or (far is not None and far.issued_seq < seq):
            yield rank


def _class_of(rank: int, edge: Edge | None, core: set[int]) -> object:
    if rank in core and len(core) <= _MAX_ALONE:
        return rank
    if edge is None:
        return (rank in core,)
    return rank in core, edge.on, edge.text, edge.site
