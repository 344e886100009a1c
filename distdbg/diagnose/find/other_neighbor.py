"""A message to, or from, another neighbor than on all other ranks: which of two halves is wrong. Pure.

    rank 2 sends to rank 0, all others to rank + 1; rank 3 waits for a message from rank 2

Where all ranks but one send to rank + 1, and a rank waits for just that message of the one, its dst is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import Differ, Pair
from distdbg.diagnose.wording import site_of
from distdbg.record.format import Flag

#: With fewer others there is no rule to be broken.
_FEWEST: Final = 2
#: Messages of a rank that are looked at, from the last back.
_MOST: Final = 256


class OtherNeighbor(NamedTuple):
    """What a finding says of it."""

    rank: int
    cause: tuple[str, ...]
    advice: str


def find_other_neighbor(session: Session, pair: Pair) -> OtherNeighbor | None:
    """Of two halves that differ in whom they name; None where no rule shows."""
    if pair.differ not in (Differ.DST, Differ.SOURCE):
        return None
    is_send = pair.differ is Differ.DST
    wrong, other = (pair.send, pair.recv) if is_send else (pair.recv, pair.send)
    ops = session.ranks[wrong.rank].ops
    peer, group = ops.peer[wrong.at], ops.group[wrong.at]
    members = list(session.members(group))
    if not {peer, wrong.rank, other.rank} <= set(members):
        return None
    kind = session.kind_of(wrong)
    others = [_steps(session, rank, group, kind, members) for rank in members if rank != wrong.rank]
    known = [steps for steps in others if steps]
    meant = _step(members, wrong.rank, other.rank)
    if len(known) < _FEWEST or any(steps != {meant} for steps in known):
        return None
    verb, to, key = ("sends", "to", "dst") if is_send else ("receives", "from", "src")
    at = f" at {site.partition(' (')[0]}" if (site := site_of(session, wrong)) else ""
    waits = (
        f"; rank {other.rank} waits for its message"
        if is_send
        else f"; rank {other.rank} has sent it a message"
    )
    return OtherNeighbor(
        wrong.rank,
        (
            f"rank {wrong.rank} {verb} {to} rank {peer}{at}, all others {to} {_say(meant, len(members))}",
            waits,
        ),
        f"see how {key} is computed on rank {wrong.rank}: all others name {_say(meant, len(members))}",
    )


def _steps(session: Session, rank: int, group: int, kind: str, members: Sequence[int]) -> set[int]:
    """How far away the ranks are that it has sent to, or received from."""
    log = session.ranks.get(rank)
    if log is None:
        return set()
    ops = log.ops
    return {
        _step(members, rank, ops.peer[at])
        for at in range(max(len(ops) - _MOST, 0), len(ops))
        if ops.flags[at] & Flag.MESSAGE
        and ops.group[at] == group
        and ops.peer[at] in members
        and session.kind_of(OpRef(rank, at)) == kind
    }


def _step(members: Sequence[int], rank: int, peer: int) -> int:
    """Around the group; a chain has the same step without its end."""
    return (members.index(peer) - members.index(rank)) % len(members)


def _say(step: int, count: int) -> str:
    return f"rank + {step}" if 2 * step <= count else f"rank - {count - step}"
