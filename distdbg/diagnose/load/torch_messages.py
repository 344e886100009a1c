"""Numbers the messages of a torch job, so that a send and its recv have one seq.

torch counts the messages of a rank on a group over all peers, so sender and receiver have different numbers.
Their order between two ranks is reliable. Where a ring has wrapped around its start is unknown; then the last
message that has ended on both sides is taken as the same one.
"""

from __future__ import annotations

from distdbg.diagnose.ops import IN_FLIGHT, NONE
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag

#: Group, sender, receiver.
_Way = tuple[int, int, int]


def number_messages(session: Session) -> None:
    """Write `seq` of all messages."""
    sends: dict[_Way, list[int]] = {}
    recvs: dict[_Way, list[int]] = {}
    for rank, log in session.ranks.items():
        ops = log.ops
        for at, flags in enumerate(ops.flags):
            if flags & Flag.MESSAGE and ops.peer[at] != NONE:
                is_send = session.forms[ops.form[at]].kind == "send"
                peer, group = ops.peer[at], ops.group[at]
                if is_send:
                    sends.setdefault((group, rank, peer), []).append(at)
                else:
                    recvs.setdefault((group, peer, rank), []).append(at)
    for way in sends.keys() | recvs.keys():
        _number(session, way, sends.get(way, []), recvs.get(way, []))


def _number(session: Session, way: _Way, sent: list[int], received: list[int]) -> None:
    _, sender, receiver = way
    from_sent = from_received = 1
    if _is_cut(session, sender) or _is_cut(session, receiver):
        ahead = _ended(session, sender, sent) - _ended(session, receiver, received)
        from_sent, from_received = 1 + max(0, -ahead), 1 + max(0, ahead)
    for rank, indexes, first in (
        (sender, sent, from_sent),
        (receiver, received, from_received),
    ):
        if indexes:
            seq = session.ranks[rank].ops.seq
            for number, at in enumerate(indexes, start=first):
                seq[at] = number


def _is_cut(session: Session, rank: int) -> bool:
    log = session.ranks.get(rank)
    return log is not None and bool(log.lost.get("ops"))


def _ended(session: Session, rank: int, indexes: list[int]) -> int:
    """How many of these are over: up to the last that is."""
    if not indexes:
        return 0
    status = session.ranks[rank].ops.status
    return next(
        (n for n in range(len(indexes), 0, -1) if status[indexes[n - 1]] != IN_FLIGHT),
        0,
    )
