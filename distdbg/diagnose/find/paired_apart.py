"""A collective that went well although one side called it at a line of its own, before an op failed. Pure.

    group '2'    rank 2: train:16  train:16  train:16      rank 3: train:16  train:16  train:18

Both calls fit, so nothing failed there; from then on the rank is a call ahead on that group, and behind on
the one that it should have called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.legality import like_array_of
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.wording import site_of
from distdbg.record.format import NO_COLLECTIVE, Status

#: So often the two have called from the same lines before.
_FEWEST: Final = 2
#: Calls before a mismatch that are compared.
_LOOKED_AT: Final = 16


def paired_apart(session: Session, matched: Matched, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """Look at the groups that ranks wait on; nothing where more than one call, or none, shows it."""
    groups = set()
    for edge in edges:
        if edge.op is not None:
            ops = session.ranks[edge.op.rank].ops
            if not ops.flags[edge.op.at] & NO_COLLECTIVE and ops.group[edge.op.at] != NONE:
                groups.add(ops.group[edge.op.at])
    found = {pair for group in groups for pair in _odd_calls(session, matched.of(group))}
    own = {pair[0] for pair in found}
    if len(own) != 1:
        return []
    odd, other = min(found)
    label = session.groups[session.ranks[odd.rank].ops.group[odd.at]].label
    sites = [site_of(session, op) for op in (odd, other)]
    short = [site.partition(" (")[0] for site in sites]
    name, kind = session.name_of(odd), session.kind_of(odd)
    text = (
        f"rank {odd.rank} called {name} at {sites[0]}, as no other rank ever did; it paired with the call of "
        f"rank {other.rank} at {sites[1]}"
    )
    cause = (
        f"rank {odd.rank} called {kind} on group '{label}' at {short[0]}",
        f", rank {other.rank} at {short[1]}",
    )
    evidence = Evidence(
        text=text, rank=odd.rank, ranks=(odd.rank,), op=odd, site=sites[0], is_extra=True
    )
    advice = f"see why rank {odd.rank} came to {short[0]}: that call is for another group, or one too many"
    return [WrongPeerFact(evidence, advice, cause, (odd.rank,), (odd.rank,))]


def _odd_calls(session: Session, ops: GroupOps) -> Iterable[tuple[OpRef, OpRef]]:
    """Calls from a line that is new to their rank and that no other one has, and what they paired with."""
    for rank in ops.by_rank:
        alike = 0
        before: set[Stack] = set()
        for op in _calls(ops, rank):
            stack = session.stack_of(op)
            others = ops.at(session.ranks[rank].ops.seq[op.at])
            apart = [
                one for r, one in others.items() if r != rank and session.stack_of(one) != stack
            ]
            alike += len(others) > 1 and not apart
            is_new = stack not in before and alike >= _FEWEST
            went_well = session.ranks[rank].ops.status[op.at] == Status.OK
            if apart and is_new and went_well and _is_own(session, op):
                # The other side calls from where both have called before.
                yield from ((op, one) for one in apart[:1] if session.stack_of(one) in before)
            before.add(stack)


def _calls(ops: GroupOps, rank: int) -> list[OpRef]:
    return [OpRef(rank, at) for at in ops.by_rank[rank].indexes if at >= 0]


def _is_own(session: Session, call: OpRef) -> bool:
    """Whether no other rank, and this one only once, has ever called from that line."""
    site = session.site_of(call)
    counts = Counter(
        rank
        for rank, log in session.ranks.items()
        for index in log.ops.stack
        if session.stacks[index][:1] == (site,)
    )
    return counts == {call.rank: 1}


def paired_unlike(
    session: Session, matched: Matched, calls: Mapping[int, OpRef], seq: int
) -> WrongPeerFact | None:
    """The last call before a mismatch of two dtypes and two reduce ops that paired unlike lines and shapes.

        rank 1 gave float32[] at train.py:14, rank 0 float32[1] at train.py:8, inside of `with Join(...)`

    Both have one element, so nothing failed there.
    """
    kinds = {session.kind_of(op) for op in calls.values()}
    forms = [session.form_of(op) for op in calls.values()]
    is_two_calls = len({form.dtype for form in forms}) > 1 and len({form.op for form in forms}) > 1
    if not seq or len(kinds) != 1 or not is_two_calls:
        return None
    op = min(calls.values())
    group = session.ranks[op.rank].ops.group[op.at]
    if session.ranks[op.rank].ops.flags[op.at] & NO_COLLECTIVE or group == NONE:
        return None
    for before in range(seq - 1, max(seq - _LOOKED_AT, 0), -1):
        pair = _unlike(session, matched.of(group).at(before))
        if pair is not None:
            return _say_unlike(session, *pair)
    return None


def _unlike(session: Session, calls: Mapping[int, OpRef]) -> tuple[OpRef, OpRef] | None:
    """One call of each of two sides that differ in shape and line; None where there are not two."""
    sides: dict[tuple[object, str], OpRef] = {}
    for _, op in sorted(calls.items()):
        array = like_array_of(session.kind_of(op), session.form_of(op))
        if array is None:
            return None  # a root has other arrays, or ranks may bring blocks of several sizes
        sides.setdefault((array, site_of(session, op)), op)
    if len(sides) != 2 or "" in {site for _, site in sides}:
        return None
    (one, mine), (two, theirs) = sides.items()
    return (mine, theirs) if one[0] != two[0] and one[1] != two[1] else None


def _say_unlike(session: Session, one: OpRef, two: OpRef) -> WrongPeerFact:
    sites = [site_of(session, op) for op in (one, two)]
    short = [site.partition(" (")[0] for site in sites]
    name = session.name_of(one)
    text = (
        f"{name} went well though rank {one.rank} called it at {sites[0]} and rank {two.rank} at {sites[1]}, "
        "with arrays of other shapes"
    )
    evidence = Evidence(text=text, rank=one.rank, ranks=(one.rank, two.rank), op=one, site=sites[0])
    seq = session.ranks[one.rank].ops.seq[one.at]
    advice = (
        f"compare {short[0]} and {short[1]}: these calls paired at #{seq}, and one of them may lack its "
        "counterpart"
    )
    return WrongPeerFact(evidence, advice)
