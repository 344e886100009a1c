"""The last op of a rank: the place to start looking for what it did since. Pure."""

from __future__ import annotations

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import known_ns, say_op, site_of


def last_op(session: Session, rank: int) -> Evidence | None:
    """What a rank called last."""
    log = session.ranks.get(rank)
    if log is None or not len(log.ops):
        return None
    at = len(log.ops) - 1
    op = OpRef(rank, at)
    state = "was in" if session.is_in_flight(op) else "last called"
    return Evidence(
        text=f"rank {rank} {state} {say_op(session, op)}",
        rank=rank,
        op=op,
        site=site_of(session, op),
        at_ns=known_ns(session.time_ns(rank, log.ops.issued_ns[at])),
    )
