"""Ranks that exchange messages in a cycle: each sends to the rank that it receives from. Pure.

0 sends to 1 and receives from 1, 1 sends to 2 and receives from 2, ... no two name each other
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import unmatched_halves
from distdbg.diagnose.wording import say_ranks, site_of

#: Two ranks name each other.
_FEWEST = 3


def not_mutual(session: Session, edges: Sequence[Edge]) -> list[WrongPeerFact]:
    """Explain a cycle of waits in messages; nothing where two ranks name each other or one has several."""
    ranks = sorted({edge.rank for edge in edges})
    sends, recvs = unmatched_halves(session)
    to, of = _by_rank(sends), _by_rank(recvs)
    if len(ranks) < _FEWEST or not all(
        len(to.get(r, ())) == len(of.get(r, ())) == 1 for r in ranks
    ):
        return []
    peers = {rank: session.ranks[rank].ops.peer[to[rank][0].at] for rank in ranks}
    if any(session.ranks[rank].ops.peer[of[rank][0].at] != peers[rank] for rank in ranks):
        return []
    if any(peers.get(peers[rank], rank) == rank for rank in ranks):
        return []
    first = ranks[0]
    site = site_of(session, of[first][0])
    short = site.partition(" (")[0]
    named = ", ".join(f"rank {rank} names rank {peers[rank]}" for rank in ranks[:4])
    return [
        WrongPeerFact(
            Evidence(
                text=f"{say_ranks(ranks)} each send to the rank that they receive from: {named}"
                + (", ..." if len(ranks) > 4 else ""),
                rank=first,
                ranks=tuple(ranks),
                op=of[first][0],
                site=site,
            ),
            "see how the peer is chosen: a peer has to name the rank that names it; in a ring receive "
            "from the other side",
            (
                "each sends to the rank it receives from",
                f" at {short}" if short else "",
                ", and no two name each other",
            ),
            tuple(ranks),
        )
    ]


def _by_rank(ops: Sequence[OpRef]) -> dict[int, list[OpRef]]:
    found: dict[int, list[OpRef]] = {}
    for op in ops:
        found.setdefault(op.rank, []).append(op)
    return found
