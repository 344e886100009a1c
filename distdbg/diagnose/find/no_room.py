"""A message that is longer than the recv of a gloo group has room for: gloo ends the receiver by SIGABRT.

It does so in a thread of its own, so nothing says which recv that was, nor what came. The records do: the
n-th recv of a rank from another one, with a tag, gets the n-th message that was sent so.
"""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import site_of
from distdbg.record.durations import nbytes_text
from distdbg.record.format import Flag


def too_long_message(session: Session, rank: int) -> tuple[str, Evidence] | None:
    """Words for the message that a rank had no room for when it died, and where it was sent."""
    log = session.ranks[rank]
    for at in log.ops.in_flight():
        recv = OpRef(rank, at)
        sender = log.ops.peer[at]
        if session.kind_of(recv) != "recv" or sender == NONE or sender not in session.ranks:
            continue
        # Torch's, or gloo that carries out ops of ours.
        if not session.groups[log.ops.group[at]].backend.endswith("gloo"):
            continue
        turn = sum(before.at < at for before in _messages(session, recv, rank, "recv", sender))
        sends = list(_messages(session, recv, sender, "send", rank))
        if turn >= len(sends):
            continue
        sent, room = _nbytes(session, sends[turn]), _nbytes(session, recv)
        if sent > room:
            words = f"rank {sender} sent it {nbytes_text(sent)}, its recv has room for {nbytes_text(room)}"
            return words, _called(session, sends[turn])
    return None


def _messages(session: Session, like: OpRef, rank: int, kind: str, peer: int) -> Iterator[OpRef]:
    """Those of one rank with another, of the group and the tag of this one."""
    ops, model = session.ranks[rank].ops, session.ranks[like.rank].ops
    wanted = model.group[like.at], model.tag[like.at], peer
    for at, flags in enumerate(ops.flags):
        if not flags & Flag.MESSAGE or (ops.group[at], ops.tag[at], ops.peer[at]) != wanted:
            continue
        if session.kind_of(OpRef(rank, at)) == kind:
            yield OpRef(rank, at)


def _nbytes(session: Session, op: OpRef) -> int:
    return session.forms[session.ranks[op.rank].ops.form[op.at]].nbytes


def _called(session: Session, op: OpRef) -> Evidence:
    site = site_of(session, op)
    return Evidence(
        text=f"rank {op.rank} called {session.name_of(op)} at {site}",
        rank=op.rank,
        op=op,
        site=site,
    )
