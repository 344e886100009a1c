"""A rank that hands messages on with the tags that they came with, and once with another one. Pure.

    rank 1 received tags 0-6 and sent tags 0-5,7

Each of its sends came behind a recv with the same tag, as a stage of a pipeline does; then it received just
the tag that the next rank waits for, and sent another one. An isend cannot help: that send never comes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import UnmatchedPair
from distdbg.diagnose.wording import site_of
from distdbg.errors import format_ranks
from distdbg.record.format import Flag

#: Fewer messages that were handed on are no habit.
_FEWEST: Final = 2
_MOST_TAGS: Final = 8


class RelayedWords(NamedTuple):
    """What a finding says of it."""

    fact: str
    advice: str


def wrong_relay(session: Session, pair: UnmatchedPair) -> RelayedWords | None:
    """Of a send whose tag is not that of the recv that waits; None where its rank has no such habit."""
    rank, ops = pair.send.rank, session.ranks[pair.send.rank].ops
    if session.ranks[rank].lost.get("ops"):
        return None
    wanted, target = session.ranks[pair.recv.rank].ops.tag[pair.recv.at], ops.peer[pair.send.at]
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
    if len(sent) <= _FEWEST or last != wanted or wanted in sent:
        return None
    tag = ops.tag[pair.send.at]
    return RelayedWords(
        f"rank {rank} had received tag {wanted}, and never sent it: it received {_tags(received)} and "
        f"sent {_tags(sent)}",
        f"see how rank {rank} makes the tag at {site_of(session, pair.send)}: "
        f"it got tag {wanted} and sent {tag}",
    )


def _tags(tags: list[int]) -> str:
    shown = [tag for tag in tags if tag >= 0]
    return f"tags {format_ranks(shown, _MOST_TAGS)}"
