"""Decides which sends and receives in flight have met; in doubt they have. Pure.

Those of one group, sender, receiver and tag are taken in order, so the n-th send in flight meets the n-th
recv. But records of a running job are read one after the other, and a sender notices that its message was
taken only when it gets a core: one side may be shown in an op that the other side has long ended. So
what has ended counts as well, by time: a send is issued, its recv starts (the receiver writes that down
before it answers), the send ends. A session that holds only what is in flight cannot tell: whoever makes
one has to make sure that no rank made progress meanwhile, and that waiting ranks have run since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag, Status

Key = tuple[int, int, int, int]
"""What messages that may meet have alike: group, sender, receiver, tag."""

_SEND: Final = KIND_LABELS.index("send")
_RECV: Final = KIND_LABELS.index("recv")


def is_halted(log: RankLog) -> bool:
    """Whether it is gone or, alive, known not to move by itself."""
    if log.is_gone:
        return True
    seen = log.activity
    # One that may be at work may still send, or receive.
    return seen is not None and seen.state.is_stuck and seen.is_patient is not False


class MessageMatcher:
    """The messages in flight, to see which of them have found each other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: Ops in order; a receiver from any has NONE for the sender.
        self._sends: dict[Key, list[int]] = {}
        self._recvs: dict[Key, list[int]] = {}
        self._past: _Past | None = None
        #: (group, receiver, tag) -> how many messages are on their way to it
        self._sent_to: dict[tuple[int, int, int], int] = {}
        for rank, log in session.ranks.items():
            ops = log.ops
            halted = is_halted(log)
            for at in ops.in_flight():
                if ops.flags[at] & Flag.MESSAGE:
                    self._add(OpRef(rank, at), ops.group[at], ops.peer[at], ops.tag[at], halted)

    def _add(self, op: OpRef, group: int, peer: int, tag: int, is_halted: bool) -> None:
        """Leave out messages of halted ranks; one that was sent before may still be taken."""
        if self._session.kind_of(op) == "send":
            key = (group, peer, tag)
            self._sent_to[key] = self._sent_to.get(key, 0) + 1
            if not is_halted:
                self._sends.setdefault((group, op.rank, peer, tag), []).append(op.at)
        elif not is_halted:
            self._recvs.setdefault((group, peer, op.rank, tag), []).append(op.at)

    def is_met(self, op: OpRef, kind: str) -> bool:
        """Whether the other side is there; in doubt it is."""
        ops = self._session.ranks[op.rank].ops
        group, peer, tag = ops.group[op.at], ops.peer[op.at], ops.tag[op.at]
        if kind == "send":
            place = self._sends[group, op.rank, peer, tag].index(op.at)
            there = len(self._recvs.get((group, op.rank, peer, tag), ()))
            there += len(self._recvs.get((group, NONE, peer, tag), ()))
        else:
            place = self._recvs[group, peer, op.rank, tag].index(op.at)
            there = (
                self._sent_to.get((group, op.rank, tag), 0)
                if peer == NONE
                else len(self._sends.get((group, peer, op.rank, tag), ()))
            )
        if place < there:
            return True
        if kind == "recv" and peer == NONE and self._are_all_received(op, place):
            return False
        if self._past is None:
            self._past = self._look_back()
        t_ns = self._session.time_ns(op.rank, ops.issued_ns[op.at])
        if kind == "send":
            return self._past.has_been_taken((group, op.rank, peer, tag), t_ns, place)
        return self._past.has_been_sent((group, peer, op.rank, tag), t_ns, place)

    def _are_all_received(self, op: OpRef, place: int) -> bool:
        """Whether the records are whole, of one clock, and have no message more than were received before."""
        session = self._session
        logs = session.ranks
        is_whole = not session.is_live or session.cut is not None
        if not is_whole or any(log.lost.get("ops") or log.clock_error_ns for log in logs.values()):
            return False
        ops = logs[op.rank].ops
        group, tag = ops.group[op.at], ops.tag[op.at]
        if not set(session.groups[group].ranks) <= logs.keys():
            return False
        sent = sum(
            flags & Flag.MESSAGE and (kind, there, at_tag, peer) == (_SEND, group, tag, op.rank)
            for log in logs.values()
            for flags, kind, there, at_tag, peer in zip(
                log.ops.flags, log.ops.kind, log.ops.group, log.ops.tag, log.ops.peer, strict=True
            )
        )
        received = sum(
            flags & Flag.MESSAGE and (kind, there, at_tag, status) == (_RECV, group, tag, Status.OK)
            for flags, kind, there, at_tag, status in zip(
                ops.flags, ops.kind, ops.group, ops.tag, ops.status, strict=True
            )
        )
        return sent <= received + place

    def _look_back(self) -> _Past:
        session = self._session
        first = {
            key: session.time_ns(key[1], session.ranks[key[1]].ops.issued_ns[ats[0]])
            for key, ats in self._sends.items()
        }
        return _Past(session, first, self._recvs.keys())


class _Past:
    """Messages that have ended since those in flight began."""

    def __init__(self, session: Session, sends: Mapping[Key, int], recvs: Collection[Key]) -> None:
        """`sends` in flight with when the first of them was issued, and `recvs`; the rest is left out."""
        self._session = session
        self._sends = sends
        self._recvs = recvs
        #: Starts of receives since the first of `sends`, and the last start.
        self._taken: dict[Key, list[int]] = {}
        self._last_ns: dict[Key, int] = {}
        #: Issue and end of sends that ended since then.
        self._sent: dict[Key, list[tuple[int, int]]] = {}
        for rank in session.ranks:
            self._add_recvs(rank)
        for rank in session.ranks:
            self._add_sends(rank)

    def _ended(self, rank: int, kind: int) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Return group, peer, tag, issued, started and ended of the messages of one kind."""
        log = self._session.ranks[rank]
        ops, offset = log.ops, log.offset_ns
        for at, (flags, mine, ended_ns) in enumerate(
            zip(ops.flags, ops.kind, ops.ended_ns, strict=True)
        ):
            if mine == kind and flags & Flag.MESSAGE and ended_ns != NEVER:
                peer = ops.peer[at] if ops.source[at] == NONE else ops.source[at]
                started_ns = ops.started_ns[at]
                yield (
                    ops.group[at],
                    peer,
                    ops.tag[at],
                    ops.issued_ns[at] + offset,
                    ended_ns + offset if started_ns == NEVER else started_ns + offset,
                    ended_ns + offset,
                )

    def _add_recvs(self, rank: int) -> None:
        for group, peer, tag, _, started_ns, _ in self._ended(rank, _RECV):
            for key in ((group, peer, rank, tag), (group, NONE, rank, tag)):
                if started_ns > self._sends.get(key, started_ns):
                    self._taken.setdefault(key, []).append(started_ns)
                if key in self._recvs:
                    self._last_ns[key] = max(self._last_ns.get(key, NEVER), started_ns)

    def _add_sends(self, rank: int) -> None:
        for group, peer, tag, issued_ns, _, ended_ns in self._ended(rank, _SEND):
            for key in ((group, rank, peer, tag), (group, NONE, peer, tag)):
                since_ns = self._sends.get(key, ended_ns)
                if key in self._recvs:
                    since_ns = min(since_ns, self._last_ns.get(key, NEVER))
                if ended_ns > since_ns:
                    self._sent.setdefault(key, []).append((issued_ns, ended_ns))

    def has_been_taken(self, key: Key, issued_ns: int, before: int) -> bool:
        """Whether a send has, of which `before` earlier ones are in flight as well."""
        taken = sum(started_ns > issued_ns for started_ns in self._taken.get(key, ()))
        earlier = sum(
            ended_ns > issued_ns > begun_ns for begun_ns, ended_ns in self._sent.get(key, ())
        )
        return taken > before + earlier

    def has_been_sent(self, key: Key, issued_ns: int, before: int) -> bool:
        """Whether the message for a recv has been taken by it already; in doubt it has."""
        last_ns = self._last_ns.get(key, NEVER)
        since_ns = max(last_ns, issued_ns)
        later = [begun_ns for begun_ns, ended_ns in self._sent.get(key, ()) if ended_ns > since_ns]
        own = any(begun_ns <= last_ns for begun_ns in later)  # of the recv that started last
        return len(later) - own > before
