"""Happened-before order of ops, by vector clocks over collectives and messages. Pure.

    order = order_of(session)              None: too many records, or incomplete or contradictory ones
    order.has_seen(end_of_recv, send)      whether the send may depend on that end

Where a record leaves open who waited for whom, a dependency is assumed: two events that are reported as
independent are independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag

#: Numbers in all clocks together: some seconds of work.
_MAX_WORK: Final = 8_000_000
_ROOT_FIRST: Final = ("broadcast", "scatter")
_ROOT_LAST: Final = ("reduce", "gather")
_RECV: Final = KIND_LABELS.index("recv")

Clock = list[int]
#: group, sender, receiver, tag
Route = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class MessageOrder:
    """The clocks of sends, the ends of receives, and which message each receive took."""

    sent: dict[OpRef, Clock]
    ended: dict[OpRef, int]
    """The rank's own count when a receive had ended."""
    taken: dict[OpRef, OpRef]
    """Send to receive."""
    places: dict[int, int]
    """Rank to its place in a clock."""
    routes: dict[Route, list[OpRef]]
    """Sends, in order."""

    def has_seen(self, recv: OpRef, send: OpRef) -> bool:
        """Whether the end of `recv` came before `send` for its sender too."""
        return self.sent[send][self.places[recv.rank]] >= self.ended[recv]


def order_of(session: Session) -> MessageOrder | None:
    """The order of all messages."""
    count = sum(len(log.ops) for log in session.ranks.values())
    if any(log.lost for log in session.ranks.values()) or count * len(session.ranks) > _MAX_WORK:
        return None
    routes, taken = _messages(session)
    maker = _Maker(session, routes, taken)
    return maker.order if maker.run() else None


def _messages(session: Session) -> tuple[dict[Route, list[OpRef]], dict[OpRef, OpRef]]:
    sends: dict[Route, list[OpRef]] = defaultdict(list)
    recvs: dict[Route, list[OpRef]] = defaultdict(list)
    for rank, log in session.ranks.items():
        ops = log.ops
        for at, flags in enumerate(ops.flags):
            if not flags & Flag.MESSAGE or flags & Flag.ASIDE:
                continue
            group, peer, tag = ops.group[at], ops.peer[at], ops.tag[at]
            if ops.kind[at] == _RECV:
                source = ops.source[at] if ops.source[at] != NONE else peer
                if source != NONE and ops.ended_ns[at] != NEVER and not ops.status[at]:
                    recvs[group, source, rank, tag].append(OpRef(rank, at))
            else:
                sends[group, rank, peer, tag].append(OpRef(rank, at))
    taken = {
        send: recv
        for route, mine in sends.items()
        for send, recv in zip(mine, recvs.get(route, ()), strict=False)
    }
    return sends, taken


class _Maker:
    def __init__(
        self, session: Session, routes: dict[Route, list[OpRef]], taken: dict[OpRef, OpRef]
    ) -> None:
        self._session = session
        places = {rank: place for place, rank in enumerate(session.ranks)}
        self._now: dict[int, Clock] = {rank: [0] * len(places) for rank in session.ranks}
        self._sender = {recv: send for send, recv in taken.items()}
        #: By group, kind of an aside (else 0) and seq: the clocks with which ranks came.
        self._came: dict[tuple[int, int, int], dict[int, Clock]] = defaultdict(dict)
        self._posted: dict[OpRef, Clock] = {}
        self.order = MessageOrder({}, {}, taken, places, routes)

    def run(self) -> bool:
        """Go through all that happened; False: a message was taken before it was sent."""
        return all(self._take(OpRef(rank, at), is_end) for _, is_end, rank, at in self._events())

    def _events(self) -> list[tuple[int, bool, int, int]]:
        return sorted(self._unsorted())

    def _unsorted(self) -> Iterator[tuple[int, bool, int, int]]:
        for rank, log in self._session.ranks.items():
            ops, offset = log.ops, log.offset_ns
            for at, (issued_ns, ended_ns) in enumerate(
                zip(ops.issued_ns, ops.ended_ns, strict=True)
            ):
                yield issued_ns + offset, False, rank, at
                if ended_ns != NEVER:
                    yield ended_ns + offset, True, rank, at

    def _take(self, op: OpRef, is_end: bool) -> bool:
        rank, at = op
        ops = self._session.ranks[rank].ops
        mine = self._now[rank]
        flags = ops.flags[at]
        is_message = bool(flags & Flag.MESSAGE)
        if is_end:
            if not is_message:
                self._join_collective(op)
            elif ops.kind[at] == _RECV:
                send = self._sender.get(op)
                if send is not None:
                    if send not in self.order.sent:
                        return False
                    _join(mine, self.order.sent[send])
            elif not flags & Flag.ASYNC:
                recv = self.order.taken.get(op)
                if recv is not None and recv in self._posted:
                    _join(mine, self._posted[recv])
        mine[self.order.places[rank]] += 1
        if is_message and is_end and ops.kind[at] == _RECV:
            self.order.ended[op] = mine[self.order.places[rank]]
        elif is_message and not is_end:
            (self._posted if ops.kind[at] == _RECV else self.order.sent)[op] = list(mine)
        elif not is_end:
            self._came[self._key(op)][rank] = list(mine)
        return True

    def _key(self, op: OpRef) -> tuple[int, int, int]:
        ops = self._session.ranks[op.rank].ops
        aside = ops.kind[op.at] if ops.flags[op.at] & Flag.ASIDE else 0
        return ops.group[op.at], aside, ops.seq[op.at]

    def _join_collective(self, op: OpRef) -> None:
        came = self._came[self._key(op)]
        kind = self._session.kind_of(op)
        root = self._session.forms[self._session.ranks[op.rank].ops.form[op.at]].root
        for rank, clock in came.items():
            if (kind in _ROOT_FIRST and rank != root) or (kind in _ROOT_LAST and op.rank != root):
                continue
            _join(self._now[op.rank], clock)


def _join(mine: Clock, other: Clock) -> None:
    for place, count in enumerate(other):
        if count > mine[place]:
            mine[place] = count
