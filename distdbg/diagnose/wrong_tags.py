"""Finds which side of a message with two tags is likely wrong: by what other ranks use at that line. Pure.

    rank 2 sent tag 1 at x.py:5, rank 3 waits for tag 0; ranks 0-1,3 sent tag 0 there: rank 2 differs

The n-th send of a line is compared with the n-th ones of the other ranks, since tags may count rounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from distdbg.diagnose.ops import IN_FLIGHT, NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.unmatched import UnmatchedPair
from distdbg.diagnose.wording import site_of
from distdbg.errors import format_ranks
from distdbg.record.format import Flag
from distdbg.record.recorded_frame import RecordedFrame

#: So often at least the lines have met as they do: fewer are no rule.
_MIN_PAIRS = 2
_Lines = tuple[RecordedFrame | None, RecordedFrame | None]


#: Fewer messages that were handed on are no habit.
_MIN_RELAYED: Final = 2
_MAX_TAGS: Final = 8


#: So often at least each tag was used at its line: fewer are no rule.
_MIN_USES: Final = 2


#: Fewer other ranks are no majority.
_MIN_OTHERS: Final = 2


def rank_with_other_tag(session: Session, pair: UnmatchedPair) -> int | None:
    """The rank whose tag is another one than that of all others at its line; None where that is not known."""
    tags = {op: session.tag_of(op) for op in (pair.send, pair.recv)}
    odd = [
        op.rank
        for op, other in ((pair.send, pair.recv), (pair.recv, pair.send))
        if _tags_of_others(session, op) == {tags[other]}
    ]
    return odd[0] if len(odd) == 1 else None


def _tags_of_others(session: Session, op: OpRef) -> set[int]:
    """The tags of the other ranks there; empty where fewer have come so far than make a majority."""
    round_ = sum(call.at <= op.at for call in _calls(session, op.rank, op)) - 1
    if round_ < 0:
        return set()  # the first messages of its rank are not known
    calls = [_calls(session, rank, op) for rank in session.ranks if rank != op.rank]
    tags = [session.tag_of(theirs[round_]) for theirs in calls if len(theirs) > round_]
    return set(tags) if len(tags) >= _MIN_OTHERS else set()


def _calls(session: Session, rank: int, like: OpRef) -> list[OpRef]:
    """The messages of a rank from the line of `like`, in order; none where the first are not known."""
    if session.ranks[rank].lost.get("ops"):
        return []
    stack = session.stack_of(like)
    mine = session.messages(rank, session.kind_of(like))
    return [op for op in mine if session.stack_of(op) == stack]


class _ChangedTag(NamedTuple):
    """The side that used the other side's tag until now."""

    rank: int
    fact: str
    """'rank 0 used tag 1 there 43 times before, and tag 2 never'."""
    cause: tuple[str, ...]
    advice: Advice


def changed_tag(session: Session, pair: UnmatchedPair) -> _ChangedTag | None:
    """None where both sides have changed, or neither, or there is no past.

        halo.py:32  rank 0 received tag 1 from rank 1 43 times, and now waits for tag 2

    Tags that count rounds are new each time, so a tag that was used once shows nothing.
    """
    send, recv = pair.send, pair.recv
    changed = [
        (op, other)
        for op, other in ((send, recv), (recv, send))
        if _has_changed(session, op, other)
    ]
    if len(changed) != 1:
        return None
    op, other = changed[0]
    if _before(session, other)[session.tag_of(other)] < _MIN_USES:
        return None
    mine, theirs = session.tag_of(op), session.tag_of(other)
    count = _before(session, op)[theirs]
    place, there = (site_of(session, one).partition(" (")[0] for one in (op, other))
    does, did = ("sends", "waits for") if op == send else ("waits for", "sent")
    if not place:
        return None
    return _ChangedTag(
        op.rank,
        f"rank {op.rank} used tag {theirs} there {count} times before, and tag {mine} never",
        (
            f"rank {op.rank} {does} tag {mine} (tag {theirs} before) at {place}",
            f"; rank {other.rank} {did} tag {theirs}",
            f" at {there}" if there else "",
        ),
        Advice(
            f"see what the tag at {place} is made from: on rank {op.rank} it was {theirs} before, and is "
            f"{mine} now",
            Trait.TAG_CHANGED,
            of=place,
        ),
    )


def _has_changed(session: Session, op: OpRef, other: OpRef) -> bool:
    """Whether its tag is new at its line, where it used each tag again and again, also the other side's."""
    before = _before(session, op)
    return (
        session.tag_of(op) not in before
        and before[session.tag_of(other)] >= _MIN_USES
        and min(before.values()) >= _MIN_USES
    )


def _before(session: Session, op: OpRef) -> Counter[int]:
    """How often its rank used each tag in earlier messages from that line with that peer."""
    ops = session.ranks[op.rank].ops
    peer, group, stack = ops.peer[op.at], ops.group[op.at], session.stack_of(op)
    return Counter(
        ops.tag[one.at]
        for one in _messages(session, op.rank, peer, group, session.kind_of(op))
        if one.at < op.at and session.stack_of(one) == stack
    )


class _RelayedWords(NamedTuple):
    """What a finding says of it."""

    fact: str
    advice: str


def wrong_relay(session: Session, pair: UnmatchedPair) -> _RelayedWords | None:
    """Explain a send whose tag is not that of the recv that waits; None where its rank relays no messages.

        rank 1 received tags 0-6 and sent tags 0-5,7

    Each of its sends came behind a recv with the same tag, as a stage of a pipeline does.
    """
    rank, ops = pair.send.rank, session.ranks[pair.send.rank].ops
    if session.ranks[rank].lost.get("ops"):
        return None
    wanted, target = session.tag_of(pair.recv), ops.peer[pair.send.at]
    group, last = ops.group[pair.send.at], NONE
    received: list[int] = []
    sent: list[int] = []
    for at in range(pair.send.at + 1):
        if not ops.flags[at] & Flag.MESSAGE or ops.group[at] != group:
            continue
        if session.kind_of(OpRef(rank, at)) == "recv":
            last = ops.tag[at]
            received.append(last)
        elif ops.peer[at] == target:
            if last != ops.tag[at] and at != pair.send.at:
                return None
            sent.append(ops.tag[at])
            last = NONE if at != pair.send.at else last
    if len(sent) <= _MIN_RELAYED or last != wanted or wanted in sent:
        return None
    tag = ops.tag[pair.send.at]
    return _RelayedWords(
        f"rank {rank} had received tag {wanted}, and never sent it: it received {_tags(received)} and "
        f"sent {_tags(sent)}",
        f"see how rank {rank} makes the tag at {site_of(session, pair.send)}: "
        f"it got tag {wanted} and sent {tag}",
    )


def _tags(tags: list[int]) -> str:
    shown = [tag for tag in tags if tag >= 0]
    return f"tags {format_ranks(shown, _MAX_TAGS)}"


def taken_by_same_tag(session: Session, recv: OpRef) -> tuple[OpRef, OpRef] | None:
    """The receive that took the message which `recv` waits for, and its send; None: it does not show.

    The order of sends and receives of one tag between two ranks pairs them; their lines show that the pair
    was not meant.
    """
    ops = session.ranks[recv.rank].ops
    peer, group, tag = ops.peer[recv.at], ops.group[recv.at], ops.tag[recv.at]
    if peer == NONE or peer not in session.ranks:
        return None
    if session.ranks[peer].lost.get("ops") or session.ranks[recv.rank].lost.get("ops"):
        return None
    pairs = [*_pairs(session, peer, recv.rank, group)]
    lines = Counter(_lines(session, pair) for pair in pairs)
    mine = session.site_of(recv)
    for send, taker in reversed(pairs):
        if ops.tag[taker.at] != tag:
            continue
        given, taken = _lines(session, (send, taker))
        is_odd = taken != mine and lines[given, taken] == 1
        return (taker, send) if is_odd and lines[given, mine] >= _MIN_PAIRS else None
    return None


def _pairs(session: Session, source: int, target: int, group: int) -> Iterator[tuple[OpRef, OpRef]]:
    """The messages between two ranks that have arrived, in the order of their receives."""
    sends: dict[int, list[OpRef]] = defaultdict(list)
    for op in _messages(session, source, target, group, "send"):
        sends[session.ranks[source].ops.tag[op.at]].append(op)
    seen: Counter[int] = Counter()
    ops = session.ranks[target].ops
    for op in _messages(session, target, source, group, "recv"):
        tag = ops.tag[op.at]
        if ops.status[op.at] == IN_FLIGHT or seen[tag] >= len(sends[tag]):
            continue
        yield sends[tag][seen[tag]], op
        seen[tag] += 1


def _messages(session: Session, rank: int, peer: int, group: int, kind: str) -> Iterator[OpRef]:
    ops = session.ranks[rank].ops
    for op in session.messages(rank, kind):
        if ops.peer[op.at] == peer and ops.group[op.at] == group:
            yield op


def _lines(session: Session, pair: tuple[OpRef, OpRef]) -> _Lines:
    return session.site_of(pair[0]), session.site_of(pair[1])
