"""Messages of a cycle of recvs that were never sent: by a line at which the other ranks have sent. Pure.

    rank 3 never sent rank 0 its message (tag 2); ranks 0-2 sent theirs at torus.py:25

A condition keeps a rank from that line, or it ended its loop before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from distdbg.diagnose.find.astray import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks, site_of
from distdbg.record.format import Flag

#: One other rank may be the odd one.
_FEWEST = 2


def not_sent_there(session: Session, edges: Sequence[Edge]) -> list[WrongPeerFact]:
    """One for each recv whose sender has never called a line from which the others send such messages."""
    if session.is_live and session.cut is None:  # it may hold what is in flight alone
        return []
    found = []
    for edge in edges:
        if edge.op is None or edge.is_any or len(edge.on) != 1:
            continue
        if session.kind_of(edge.op) == "recv" and (miss := _miss(session, edge.op, edge.on[0])):
            found.append(miss)
    return found


def _miss(session: Session, recv: OpRef, sender: int) -> WrongPeerFact | None:
    tag = session.ranks[recv.rank].ops.tag[recv.at]
    sites: dict[str, dict[int, OpRef]] = defaultdict(dict)
    for rank, log in session.ranks.items():
        if log.lost.get("ops"):
            return None
        for at, flags in enumerate(log.ops.flags):
            op = OpRef(rank, at)
            is_like = flags & Flag.MESSAGE and log.ops.tag[at] == tag
            if is_like and session.kind_of(op) == "send" and (site := site_of(session, op)):
                sites[site].setdefault(rank, op)
    known = {site: by for site, by in sites.items() if len(by) >= _FEWEST}
    if not known or any(sender in by for by in sites.values()):
        return None
    site, by = max(known.items(), key=lambda item: len(item[1]))
    shown = f" (tag {tag})" if tag else ""
    short = site.partition(" (")[0]
    others = say_ranks(by, 3)
    return WrongPeerFact(
        Evidence(
            text=f"rank {sender} never sent rank {recv.rank} the message{shown}; {others} sent theirs at "
            f"{site}",
            rank=sender,
            ranks=(sender, recv.rank),
            op=next(iter(by.values())),
            site=site,
            is_left_out=True,
        ),
        f"see what keeps rank {sender} from {short}: a condition, or a loop that ended before",
        (
            f"rank {sender} never sent rank {recv.rank} its message{shown}",
            f"; {others} sent theirs at {short}",
        ),
        (sender,),
    )
