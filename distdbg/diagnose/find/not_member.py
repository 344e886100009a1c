"""Ranks that called an op on a group that they are not in, which does nothing: its members wait for them.

    ranks 1-2 called all_reduce at machines.py:27 (mean) on a group that they are not in, which does nothing

Pure. Torch and distdbg warn of such a call and go on; each is a mark in the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import say_ranks, short_site, verb
from distdbg.record.entries import MarkEntry
from distdbg.record.known_marks import NOT_A_MEMBER


def calls_of_no_member(session: Session, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """Find ranks that others wait for in such an op at that line: one fact for each line."""
    ranks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for edge in edges:
        if edge.op is not None and edge.site:
            kind = session.kind_of(edge.op)
            mine = {rank for rank in edge.on if _has_called(session, rank, kind, edge.site)}
            ranks[kind, edge.site] |= mine
    return [_fact(*call, tuple(sorted(mine))) for call, mine in ranks.items() if mine]


def _has_called(session: Session, rank: int, kind: str, site: str) -> bool:
    log = session.ranks.get(rank)
    for note in () if log is None else log.notes:
        if isinstance(note, MarkEntry) and (note.name or "").startswith(NOT_A_MEMBER):
            function, _, place = (note.name or "").removeprefix(NOT_A_MEMBER).partition(" at ")
            # 'isend' is a send, 'all_gather_into_tensor' an all_gather.
            if function.removeprefix("i").startswith(kind) and short_site(place) == site:
                return True
    return False


def _fact(kind: str, site: str, ranks: tuple[int, ...]) -> WrongPeerFact:
    short = site.partition(" (")[0]
    are = verb(ranks, "it is", "they are")
    calls = f"{say_ranks(ranks)} called {kind} at"
    what = f"on a group that {are} not in, which does nothing"
    return WrongPeerFact(
        Evidence(text=f"{calls} {site} {what}", rank=ranks[0], ranks=ranks, site=site),
        Advice(
            f"see how {short} chooses the group: {say_ranks(ranks, 3)} {verb(ranks, 'takes', 'take')} "
            "that of others",
            Trait.GROUP_CHOICE,
        ),
        (f"{calls} {short} {what}",),
        ranks,
        ranks,
    )
