"""A rank in a message with a rank that has exchanged none with it and went on to a collective. Pure.

    rank 2 received nothing from rank 5 and went on to barrier; ranks 0-1 receive such messages at tree.py:28

One of the two has the wrong peer: a list of neighbors, a number of them, a condition. Where others make the
other half of such messages is the line to look at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.other_half import OTHER_KIND, messages_of, other_half, partner_of
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import is_past_messages, waits_for_past
from distdbg.diagnose.wording import say_ranks, site_of

_WORDS: Final = {"recv": ("received", "from", "receive"), "send": ("sent", "to", "send")}
#: One other rank may be the odd one.
_FEWEST: Final = 2
#: Waits that are looked at.
_LIMIT: Final = 8


def not_exchanged(session: Session, edges: Sequence[Edge]) -> list[WrongPeerFact]:
    """One for each send or recv whose peer has made no other half of it, ever."""
    if session.is_live and session.cut is None:  # it may hold what is in flight alone
        return []
    waits = waits_for_past(session, edges)
    found = [_miss(session, op) for op in waits[:_LIMIT]]
    found += [_of_any(session, edge) for edge in [one for one in edges if one.is_any][:_LIMIT]]
    return [miss for miss in found if miss is not None]


def _miss(session: Session, op: OpRef) -> WrongPeerFact | None:
    ops = session.ranks[op.rank].ops
    peer, tag, kind = ops.peer[op.at], ops.tag[op.at], session.kind_of(op)
    if kind not in OTHER_KIND or any(log.lost.get("ops") for log in session.ranks.values()):
        return None
    answer = OTHER_KIND[kind]
    if any(
        partner_of(session, one) in (op.rank, -1) for one in messages_of(session, peer, answer, op)
    ):
        return None
    sites: dict[str, dict[int, OpRef]] = defaultdict(dict)
    for rank in sorted(session.ranks):
        for one in messages_of(session, rank, answer, op):
            if session.ranks[rank].ops.tag[one.at] == tag and (site := site_of(session, one)):
                sites[site].setdefault(rank, one)
    if not sites:
        return None
    did, whom, do = _WORDS[answer]
    last = next(session.ranks[peer].ops.in_flight(), None)
    went = f" and went on to {session.kind_of(OpRef(peer, last))}" if last is not None else ""
    head = f"rank {peer} {did} nothing {whom} rank {op.rank}{went}"
    sites = _of_such_messages(session, op, sites)
    if not sites:
        return _miss_alone(op, peer, head, f"{do} {whom}")
    # A line that the peer did call, for another rank, says less than one that it left out.
    site, by = max(sites.items(), key=lambda item: (peer not in item[1], len(item[1])))
    short = site.partition(" (")[0]
    others = f"{say_ranks(by, 3)} {do}{'s' * (len(by) == 1)} such messages at "
    return WrongPeerFact(
        Evidence(
            text=f"{head}; {others}{site}",
            rank=peer,
            ranks=(peer, op.rank),
            op=next(iter(by.values())),
            site=site,
            is_left_out=True,
        ),
        f"see why rank {peer} does not {do} {whom} rank {op.rank} at {short}; if it must not, see why "
        f"rank {op.rank} has rank {peer} as its peer",
        (head, f"; {others}{short}"),
        (peer, op.rank),
    )


def _miss_alone(op: OpRef, peer: int, head: str, do: str) -> WrongPeerFact:
    """Where nobody makes the other half of such messages: no line is named."""
    return WrongPeerFact(
        Evidence(text=head, rank=peer, ranks=(peer, op.rank), op=op),
        f"see why rank {peer} does not {do} rank {op.rank}; if it must not, see why rank {op.rank} has "
        f"rank {peer} as its peer",
        (head,),
        (peer, op.rank),
    )


def _of_such_messages(
    session: Session, op: OpRef, sites: Mapping[str, Mapping[int, OpRef]]
) -> dict[str, dict[int, OpRef]]:
    """Only lines whose messages come from the line of `op`; else those from its function; else none.

    A message of another exchange may have the same tag.
    """
    mine = session.site_of(op)
    if mine is None:
        return {site: dict(by) for site, by in sites.items()}
    at_line: dict[str, dict[int, OpRef]] = {}
    in_function: dict[str, dict[int, OpRef]] = {}
    for site, by in sites.items():
        for rank, one in by.items():
            half = other_half(session, one)
            theirs = None if half is None else session.site_of(half)
            if theirs is None or theirs == mine:  # of one that nobody has met that may be
                at_line.setdefault(site, {})[rank] = one
            elif (theirs.file, theirs.function) == (mine.file, mine.function):
                in_function.setdefault(site, {})[rank] = one
    return at_line or in_function


def _of_any(session: Session, edge: Edge) -> WrongPeerFact | None:
    """Find who has never sent a recv from any rank what all the others did, at one line."""
    op, logs = edge.op, session.ranks
    if op is None or any(log.lost.get("ops") for log in logs.values()):
        return None
    if not all(is_past_messages(session, rank) for rank in edge.on):
        return None
    sites: dict[str, dict[int, OpRef]] = defaultdict(dict)
    for rank in edge.on:
        for one in messages_of(session, rank, "send", op):
            is_there = logs[rank].ops.peer[one.at] == op.rank
            if is_there and (site := site_of(session, one)):
                sites[site].setdefault(rank, one)
    sites = _of_such_messages(session, op, sites)
    known = {
        site: by for site, by in sites.items() if len(by) >= _FEWEST and 2 * len(by) > len(edge.on)
    }
    known = {site: by for site, by in known.items() if len(by) < len(edge.on)}
    if not known:
        return None
    # The last of several lines is what the recv still waits for.
    site, by = max(
        known.items(), key=lambda item: (len(item[1]), min(o.at for o in item[1].values()))
    )
    odd = tuple(sorted(set(edge.on) - by.keys()))
    short = site.partition(" (")[0]
    head = (
        f"{say_ranks(odd)} never sent rank {op.rank} the message that {say_ranks(by, 3)} sent at "
    )
    return WrongPeerFact(
        Evidence(
            text=f"{head}{site}",
            rank=odd[0],
            ranks=(*odd, op.rank),
            op=next(iter(by.values())),
            site=site,
            is_left_out=True,
        ),
        f"see why {say_ranks(odd)} {'does' if len(odd) == 1 else 'do'} not send at {short}, as the others do",
        (f"{head}{short}",),
        odd,
        odd,
    )
