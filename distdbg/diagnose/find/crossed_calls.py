"""Unmatched calls that were meant for each other, as evidence of findings about waits.

A message with another tag, on another group or to another rank; a recv from any rank that took the message of
a later recv; an op on one group by ranks that others wait for on another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from distdbg.diagnose.find.other_group import ADVICE
from distdbg.diagnose.find.other_neighbor import find_other_neighbor
from distdbg.diagnose.find.phrases import telling_site
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.unmatched import (
    PairDifference,
    UnmatchedPair,
    find_pairs,
    say_taken,
    taken_by_any,
)
from distdbg.diagnose.wording import known_ns, say_op, say_ranks, site_of
from distdbg.diagnose.wrong_tags import (
    changed_tag,
    rank_with_other_tag,
    taken_by_same_tag,
    wrong_relay,
)
from distdbg.record.format import NO_COLLECTIVE, Flag

#: With two ranks either may be wrong.
_MIN_RANKS: Final = 3
#: Ranks of a line that are compared.
_MAX_RANKS: Final = 512


_LIMIT: Final = 16
_ADVICE: Final = {
    PairDifference.TAG: "send and receive in the same order with the same tags, or use isend or irecv",
    PairDifference.GROUP: "send and receive the message on the same group",
    PairDifference.DST: "compare dst of the send with src of the recv: they name different ranks",
    PairDifference.SOURCE: "compare dst of the send with src of the recv: they name different ranks",
}
_ANY: Final = (
    "receive from the intended rank (src=), or send what a recv is meant for with a tag of its own"
)
_GROUPS: Final = "use the same groups in the same order on all ranks: compare the two lines"
#: In the label of the group of a group's ops on the host, where others are on a GPU.
_HOST: Final = " (host)"
_DEVICES: Final = (
    "put the array on a GPU on all ranks, or on the host on all: each side waits for its own"
)
_ORDER: Final = Advice(
    "see how that line chooses the group, or orders them: a set, or a sort by rank-local values, may "
    "differ between ranks",
    Trait.GROUP_CHOICE,
)


class WrongPeerFact(NamedTuple):
    """One fact about two calls."""

    evidence: Evidence
    advice: str
    cause: tuple[str, ...] = ()
    """What explains the wait, for the first line, in pieces; () where it may not be the cause."""
    ranks: tuple[int, ...] = ()
    """Those whose call is likely wrong."""
    odd: tuple[int, ...] = ()
    """Those of them that alone are the cause: all others of the deadlock did what they had to."""
    affected: tuple[int, ...] = ()
    """Others that made the call as most did."""


def unmatched_messages(
    session: Session, edges: Iterable[Edge], behind: Iterable[Edge] = ()
) -> list[WrongPeerFact]:
    """Sends and recvs of which one is what a rank of these waits in; `behind` waits for these."""
    edges, behind = list(edges), list(behind)
    if not _has_message(session, edges):
        return []
    mine = {edge.rank for edge in edges}
    near = mine | {edge.rank for edge in behind}
    found = [
        pair
        for pair in find_pairs(session)
        if {pair.send.rank, pair.recv.rank} <= near | _at_work(pair)
        and mine & {pair.send.rank, pair.recv.rank}
    ]
    alike: dict[tuple[OpRef, int, Stack], list[UnmatchedPair]] = {}
    for pair in found:  # sends of one line to one recv are one fact
        key = pair.recv, pair.send.rank, session.stack_of(pair.send)
        alike.setdefault(key, []).append(pair)
    return [_miss(session, pairs[0], len(pairs) - 1) for pairs in [*alike.values()][:_LIMIT]]


def _at_work(pair: UnmatchedPair) -> set[int]:
    """Whose isend is in flight may be in its own code: it is there for a recv that names another rank."""
    return {pair.send.rank} if pair.differ is PairDifference.SOURCE else set()


def _miss(session: Session, pair: UnmatchedPair, more: int) -> WrongPeerFact:
    """`more`: so many messages of the same line are as this one."""
    neighbor = find_other_neighbor(session, pair)
    is_cause = pair.is_likely or neighbor is not None
    log = session.ranks[pair.send.rank]
    target = log.ops.peer[pair.send.at]
    # With no tag that is the recv's alone, the target may as well be gone too early. Of two tags or groups
    # either may be the wrong one.
    is_one = pair.differ is PairDifference.DST and log.ops.tag[pair.send.at]
    wrong = (pair.send.rank,) if is_one else tuple(sorted((pair.send.rank, target)))
    relayed = changed = None
    if pair.differ is PairDifference.TAG:
        odd = rank_with_other_tag(session, pair)
        relayed = wrong_relay(session, pair) if odd in (None, pair.send.rank) else None
        odd = pair.send.rank if relayed is not None else odd
        changed = changed_tag(session, pair) if relayed is None else None
        if changed is not None and odd in (None, changed.rank):
            odd = changed.rank
        else:
            changed = None  # what the other ranks use says more
        wrong = wrong if odd is None else (odd,)
    cause, advice = pair.cause, relayed.advice if relayed is not None else _advice(session, pair)
    if changed is not None:
        cause, advice = changed.cause, changed.advice
    if neighbor is not None:
        wrong, cause, advice = (neighbor.rank,), neighbor.cause, neighbor.advice
    return WrongPeerFact(
        Evidence(
            text=pair.text
            + (f" ({more} more sent at that line)" if more else "")
            + (f"; {relayed.fact}" if relayed is not None else "")
            + (f"; {changed.fact}" if changed is not None else ""),
            rank=pair.send.rank,
            ranks=(pair.send.rank, pair.recv.rank),
            op=pair.send,
            site=site_of(session, pair.send),
            at_ns=known_ns(session.time_ns(pair.send.rank, log.ops.issued_ns[pair.send.at])),
        ),
        advice if is_cause else "",
        cause if is_cause else (),
        wrong if is_cause else (),
        wrong if is_cause and len(wrong) == 1 else (),
    )


def _advice(session: Session, pair: UnmatchedPair) -> str:
    flags = [session.ranks[op.rank].ops.flags[op.at] for op in (pair.send, pair.recv)]
    if pair.differ is PairDifference.TAG and all(flag & Flag.ASYNC for flag in flags):
        return "use the same tag for the send and the recv"
    return _ADVICE[pair.differ]


def taken_messages(session: Session, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """Find ranks that wait for a message which another recv of their own took before."""
    found = []
    for edge in edges:
        if not _has_message(session, (edge,)) or edge.op is None:
            continue
        if session.kind_of(edge.op) != "recv":
            continue
        taker = taken_by_any(session, edge.op)
        if taker is None:
            found += _of_same_tag(session, edge.op)
            continue
        is_cause = _somebody_is_left(session, edge.op)
        text = "".join(say_taken(session, edge.op, taker))
        cause = say_taken(session, edge.op, taker, short=True) if is_cause else ()
        evidence = Evidence(text=text, rank=edge.rank, op=taker, site=site_of(session, taker))
        own = (edge.rank,) if is_cause else ()
        found.append(WrongPeerFact(evidence, _ANY, cause, own, own))
    return found


def _of_same_tag(session: Session, recv: OpRef) -> list[WrongPeerFact]:
    """The message went to another recv of the same tag."""
    pair = taken_by_same_tag(session, recv)
    if pair is None:
        return []
    taker, send = pair
    tag = session.tag_of(recv)
    sites = [site_of(session, op) for op in (taker, send, recv)]
    short = [site.partition(" (")[0] for site in sites]
    text = (
        f"rank {recv.rank}'s recv at {sites[0]} took the message that rank {send.rank} sent at {sites[1]} "
        f"(tag {tag}); messages of that line go to its recv at {sites[2]}, which waits for it"
    )
    cause = (
        f"rank {recv.rank}'s recv at {short[0]} took rank {send.rank}'s message of {short[1]} (tag {tag})",
        f", needed at {short[2]}",
    )
    evidence = Evidence(text=text, rank=recv.rank, op=taker, site=sites[0])
    own = (recv.rank,)
    advice = f"tag {tag} is used twice: give each kind of message tags of its own"
    return [WrongPeerFact(evidence, advice, cause, own, own)]


def _somebody_is_left(session: Session, recv: OpRef) -> bool:
    """Whether another rank, not gone, is there whose message the recv from any rank could have been for."""
    ops = session.ranks[recv.rank].ops
    group, tag, peer = ops.group[recv.at], ops.tag[recv.at], ops.peer[recv.at]
    heard = {
        ops.source[at]
        for at, flags in enumerate(ops.flags)
        if flags & Flag.MESSAGE and (ops.group[at], ops.tag[at]) == (group, tag)
    }
    return any(
        rank not in (recv.rank, peer)
        and rank not in heard
        and (log := session.ranks.get(rank)) is not None
        and not log.is_gone
        for rank in session.members(group)
    )


def mixed_groups(
    session: Session, edges: Sequence[Edge], behind: Sequence[Edge] = ()
) -> list[WrongPeerFact]:
    """Ranks in one op on two groups, where one of them is waited for on the group of the other."""
    found: dict[frozenset[int], WrongPeerFact] = {}
    everybody = [edge for edge in (*edges, *behind) if _is_collective(session, edge)]
    for edge in edges:
        for other in everybody if _is_collective(session, edge) else ():
            pair = frozenset((edge.rank, other.rank))
            if len(pair) < 2 or pair in found or len(found) == _LIMIT:
                continue
            miss = _mixed(session, other, edge, everybody)
            if miss is not None:
                found[pair] = miss
    # Each names all ranks of its line.
    causes = {miss.cause: miss for miss in found.values() if miss.cause}
    return list(causes.values()) or list(found.values())


def _mixed(
    session: Session, waiter: Edge, other: Edge, everybody: Sequence[Edge]
) -> WrongPeerFact | None:
    """`waiter` waits on its group for the rank of `other`, which is in an op on another one."""
    if waiter.op is None or other.op is None or other.rank not in waiter.on:
        return None
    groups = [session.group_of(waiter.op), session.group_of(other.op)]
    if groups[0] is None or groups[1] is None or groups[0] == groups[1]:
        return None
    kinds = {session.kind_of(waiter.op), session.kind_of(other.op)}
    shorter, longer = sorted((groups[0].label, groups[1].label), key=len)
    if longer == shorter + _HOST and len(kinds) == 1:
        return _of_devices(session, kinds.pop(), shorter, everybody)
    ranks, site = (waiter.rank, other.rank), site_of(session, other.op)
    # The whole stack: a line of a function that takes the group as an argument says nothing.
    if len(kinds) == 1 and site and session.stack_of(waiter.op) == session.stack_of(other.op):
        kind = kinds.pop()
        by_group = _ranks_by_group(session, other.op, kind, everybody)
        calls = _say_by_group(kind, by_group)
        text = f"at {site} {calls}"
        odd, most = _against_most(by_group)
        other_choice = None if odd else _who_chose_another(session, other.op)
        if other_choice is not None and other_choice.rank in (waiter.rank, other.rank):
            return _of_choice(session, kind, other_choice, everybody)
        cause = f"at {site.partition(' (')[0]} {calls}"
        count = f" ({len(most)} of {len(odd) + len(most)} ranks)" if odd else ""
        evidence = Evidence(
            text=text + count, rank=other.rank, ranks=ranks, op=other.op, site=other.site
        )
        is_either = not odd and waiter.rank in groups[1].ranks
        return WrongPeerFact(
            evidence, _ORDER if is_either else ADVICE, (cause, count), odd, odd, most
        )
    if waiter.rank not in groups[1].ranks:
        return None
    by_group = _ranks_by_order(session, everybody, {groups[0].label, groups[1].label})
    odd, most = _against_most(by_group) if len(by_group) > 1 else ((), ())
    if odd:
        return _out_of_order(session, everybody, odd, most)
    first, second = sorted((waiter.op, other.op))
    text = (
        f"rank {first.rank} called {say_op(session, first)}, rank {second.rank} "
        f"{say_op(session, second)}; both are in both groups"
    )
    evidence = Evidence(
        text=text, rank=first.rank, ranks=ranks, op=first, site=site_of(session, first)
    )
    return WrongPeerFact(evidence, _GROUPS)


def _of_devices(
    session: Session, kind: str, label: str, everybody: Sequence[Edge]
) -> WrongPeerFact:
    """Ranks in one kind of op of the group `label`, some with an array on the host, others on a GPU."""
    by_label: dict[str, list[Edge]] = {label: [], label + _HOST: []}
    for edge in everybody:
        group = None if edge.op is None else session.group_of(edge.op)
        if group is not None and group.label in by_label:
            by_label[group.label].append(edge)
    on_gpu, on_host = by_label.values()
    cause = (
        f"{say_ranks([edge.rank for edge in on_host])} called {kind} with an "
        f"array on the host, {say_ranks([edge.rank for edge in on_gpu])} with one on a GPU"
    )
    lines = " and ".join(dict.fromkeys(edge.site for edge in (on_host[0], on_gpu[0])))
    evidence = Evidence(
        text=f"{cause}: at {lines}",
        rank=on_host[0].rank,
        ranks=(on_host[0].rank, on_gpu[0].rank),
        op=on_host[0].op,
        site=on_host[0].site,
    )
    affected = tuple(edge.rank for edge in (*on_host, *on_gpu))
    return WrongPeerFact(evidence, _DEVICES, (cause,), affected=affected)


def _of_choice(
    session: Session, kind: str, choice: _RankAtLine, everybody: Sequence[Edge]
) -> WrongPeerFact:
    """One rank's group at a line is another one than that in which the others meet there."""
    place, label = site_of(session, choice.op), session.groups[choice.used].label
    meant = session.groups[choice.meant].label
    members = choice.met
    waits = tuple(sorted({edge.rank for edge in everybody if edge.rank in members}))
    calls = f"rank {choice.rank} called {kind} on group '{label}', {say_ranks(members)} on group '{meant}'"
    text = f"at {place} {calls}"
    if choice.others:
        text += f"; {', '.join(f'{say_ranks(r)} on {session.groups[g].label!r}' for g, r in choice.others)}"
    evidence = Evidence(
        text=text, rank=choice.rank, ranks=(choice.rank, *members), op=choice.op, site=place
    )
    cause = f"at {place.partition(' (')[0]} {calls}"
    advice = (
        f"see how that line chooses the group: rank {choice.rank} takes another one than the others"
    )
    own = (choice.rank,)
    return WrongPeerFact(evidence, advice, (cause,), own, own, waits)


def _ranks_by_order(
    session: Session, edges: Sequence[Edge], labels: set[str]
) -> list[tuple[str, tuple[int, ...]]]:
    """List who waits on which of these groups, of ranks that are in all of them: the fewest first."""
    members = [set(g.ranks) for g in session.groups if g.label in labels and g.ranks]
    ranks: dict[str, set[int]] = {}
    for edge in edges:
        group = session.group_of(edge.op) if edge.op is not None else None
        if group is not None and group.label in labels and all(edge.rank in m for m in members):
            ranks.setdefault(group.label, set()).add(edge.rank)
    parts = [(label, tuple(sorted(mine))) for label, mine in ranks.items()]
    return sorted(parts, key=lambda part: (len(part[1]), part[1]))


def _out_of_order(
    session: Session, edges: Sequence[Edge], odd: tuple[int, ...], most: tuple[int, ...]
) -> WrongPeerFact:
    """Most ranks are in an op of one group, these in one of another, and all of them are in both groups."""
    own = {edge.rank: edge.op for edge in edges if edge.op is not None}
    kinds = {session.kind_of(own[rank]) for rank in (odd[0], most[0])}
    texts, shorts = [], []
    for ranks in (odd, most):
        op = own[ranks[0]]
        label = group.label if (group := session.group_of(op)) is not None else "?"
        called = f" called {session.kind_of(op)}" if ranks is odd or len(kinds) > 1 else ""
        call, site = f"{say_ranks(ranks)}{called} on group '{label}'", telling_site(session, op)
        texts.append(f"{call} at {site}" if site else call)
        shorts += [call, f" at {site.partition(' (')[0]}" if site else ""]
    site = telling_site(session, own[odd[0]])
    text = "; ".join(texts)
    evidence = Evidence(text=text, rank=odd[0], ranks=(*odd, *most), op=own[odd[0]], site=site)
    came = f"came to {site} first" if site else "came to another one first"
    advice = Advice(
        f"use the groups in the same order: see why {say_ranks(odd, 3)} {came}", Trait.OTHER_LINES
    )
    cause = (shorts[0] + shorts[1], f"; {shorts[2]}{shorts[3]}")
    return WrongPeerFact(evidence, advice, cause, odd, odd, most)


def _ranks_by_group(
    session: Session, op: OpRef, kind: str, edges: Sequence[Edge]
) -> list[tuple[str, tuple[int, ...]]]:
    """List who made this call at this place on which group: the fewest first."""
    ranks: dict[str, set[int]] = {}
    for edge in edges:
        if edge.op is None or session.kind_of(edge.op) != kind:
            continue
        group = session.group_of(edge.op)
        if group is not None and session.stack_of(edge.op) == session.stack_of(op):
            ranks.setdefault(group.label, set()).add(edge.rank)
    parts = [(label, tuple(sorted(members))) for label, members in ranks.items()]
    return sorted(parts, key=lambda part: (len(part[1]), part[1]))


def _against_most(
    parts: Sequence[tuple[str, tuple[int, ...]]],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks on the other groups, and those on the group that more than half of them chose; () if none."""
    most = parts[-1][1]
    odd = tuple(sorted(rank for _, ranks in parts[:-1] for rank in ranks))
    return (odd, most) if len(most) > len(odd) > 0 else ((), ())


def _say_by_group(kind: str, parts: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """'rank 1 called all_reduce on group 'dp', ranks 0,2-3 on group 'tp''."""
    words = [f"{say_ranks(members)} on group '{label}'" for label, members in parts]
    return ", ".join([words[0].replace(" on group", f" called {kind} on group", 1), *words[1:]])


def _is_collective(session: Session, edge: Edge) -> bool:
    if edge.op is None:
        return False
    return not session.ranks[edge.rank].ops.flags[edge.op.at] & NO_COLLECTIVE


def _has_message(session: Session, edges: Iterable[Edge]) -> bool:
    return any(
        edge.op is not None and session.ranks[edge.rank].ops.flags[edge.op.at] & Flag.MESSAGE
        for edge in edges
    )


class _RankAtLine(NamedTuple):
    """One rank at one line."""

    rank: int
    op: OpRef
    used: int
    meant: int
    met: tuple[int, ...]
    """The ranks that called it on the group that was meant."""
    others: tuple[tuple[int, tuple[int, ...]], ...]
    """Other groups, and who called it on those."""


def _who_chose_another(session: Session, like: OpRef) -> _RankAtLine | None:
    """Find the one rank whose group at the line of `like` is not that of the others.

        x.py:42    ranks 0,2 'replicas0'    rank 1 'replicas1'    rank 3 'split1'

    Without that rank no two groups of the line share a rank, and it is a member of one of them; without any
    other rank that is not so.
    """
    last = {rank: op for rank in session.ranks if (op := _last(session, rank, like)) is not None}
    if not _MIN_RANKS <= len(last) <= _MAX_RANKS:
        return None
    used = {rank: session.ranks[rank].ops.group[op.at] for rank, op in last.items()}
    found = [(rank, meant) for rank in last if (meant := _meant(session, used, rank)) is not None]
    if len(found) != 1:
        return None
    rank, meant = found[0]
    others: dict[int, list[int]] = {}
    for one, group in used.items():
        if one != rank and group != meant:
            others.setdefault(group, []).append(one)
    met = tuple(one for one, group in used.items() if group == meant)
    rest = tuple((group, tuple(ranks)) for group, ranks in others.items())
    return _RankAtLine(rank, last[rank], used[rank], meant, met, rest)


def _meant(session: Session, used: dict[int, int], rank: int) -> int | None:
    """The group that a rank belongs in, by those of all others; None where they share a rank."""
    groups = {group for one, group in used.items() if one != rank}
    if used[rank] in groups:
        return None
    seen: set[int] = set()
    for group in groups:
        members = set(session.members(group))
        if not seen.isdisjoint(members):
            return None
        seen |= members
    return next((group for group in groups if rank in session.members(group)), None)


def _last(session: Session, rank: int, like: OpRef) -> OpRef | None:
    theirs = session.ranks[like.rank].ops
    stack, kind = session.stacks[theirs.stack[like.at]], session.kind_of(like)
    ops = session.ranks[rank].ops
    for at in range(len(ops) - 1, -1, -1):
        if ops.group[at] == NONE or ops.flags[at] & NO_COLLECTIVE:
            continue
        if session.stacks[ops.stack[at]] == stack and session.kind_of(OpRef(rank, at)) == kind:
            return OpRef(rank, at)
    return None
