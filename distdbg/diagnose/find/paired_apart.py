"""A collective that went well although one side called it at a line of its own, before a deadlock. Pure.

    group '2'    rank 2: train:16  train:16  train:16      rank 3: train:16  train:16  train:18

Both calls fit, so nothing failed there; from then on the rank is a call ahead on that group, and behind on
the one that it should have called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.wording import site_of
from distdbg.record.format import NO_COLLECTIVE, Status

#: So often the two have called from the same lines before.
_FEWEST: Final = 2


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
