"""Deadlock: ranks that wait for each other so that none of them can go on, whatever the others do.

Proven by `graph`, from waits that leave out every rank that may go on: one without a record, one that runs
or is stopped, one with a hole in its record. So there is no false deadlock, and no timeout is involved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from distdbg.diagnose.find.crossed_calls import (
    WrongPeerFact,
    mixed_groups,
    taken_messages,
    unmatched_messages,
)
from distdbg.diagnose.find.not_exchanged import not_exchanged
from distdbg.diagnose.find.not_member import calls_of_no_member
from distdbg.diagnose.find.not_mutual import not_mutual
from distdbg.diagnose.find.not_relayed import not_relayed_messages
from distdbg.diagnose.find.one_more_message import one_more_message
from distdbg.diagnose.find.paired_apart import paired_apart
from distdbg.diagnose.find.unanswered import one_answer_more, unanswered_messages
from distdbg.diagnose.find.unsent import not_sent_there, unsent_messages
from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.graph import find_deadlocks
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import NO_TRAITS, Advice, FactKind, Trait
from distdbg.diagnose.wording import MAX_LINE, fit, say_ranks, site_of, verb
from distdbg.errors import format_ranks
from distdbg.record.format import Flag

#: Two that wait for each other are no ring.
_MIN_RING: Final = 3
_MAX_RING_TEXT: Final = 60
_ARROWS: Final = {"recv": " <- ", "send": " -> "}


#: Ranks of a deadlock that evidence is shown of.
_MAX_SHOWN: Final = 16

#: Also known to who has the source, and may know better.
MESSAGES: Final = Advice(
    "let one side send while the other receives, by the parity of the rank, "
    "or use isend or batch_isend_irecv",
    Trait.ONE_SIDE_FIRST,
)
_NOBODY_SENDS: Final = (
    "all of them receive: see which one has to send first, or has left out a message that "
    "another one expects"
)
_UNMET: Final = (
    "compare dst of the send with src of the recvs; if all three are meant, change their order"
)
_RING: Final = (
    "in a ring one rank has to begin with its other neighbor: let even ranks exchange with the next one "
    "first and the others with the one before, or use isend or batch_isend_irecv"
)
_ANY: Final = (
    "one rank must send before all wait: a recv from any rank ends when another rank sends"
)
_GROUPS: Final = "use the groups in the same order on all ranks"
_MIXED: Final = "on all ranks, put all messages before the collective, or all after it"
_NOT_MEMBERS: Final = ", also those that are to be no members of the new one"


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """One finding per cycle, or smallest set of deadlocked ranks; nothing when none is proven."""
    gone = {rank for rank, log in session.ranks.items() if log.is_gone}
    # A recv from any rank of whom one has died ends with an error: its rank can move. So does an op
    # of a group that one of those waited for has destroyed.
    sure = {rank: edges for rank, edges in waits.items() if not _ends_with_an_error(gone, edges)}
    deadlocks = find_deadlocks(sure, gone)
    return [
        _Telling(
            session,
            matched,
            [edge for rank in core for edge in sure[rank]],
            [edge for rank in victims for edge in waits.get(rank, ())],
            is_cycle,
        ).finding(core, victims)
        for core, is_cycle, victims in zip(
            deadlocks.cores, deadlocks.cycles, deadlocks.victims, strict=True
        )
    ]


def _ends_with_an_error(gone: set[int], edges: Iterable[Edge]) -> bool:
    return any(edge.left or (edge.is_any and not gone.isdisjoint(edge.on)) for edge in edges)


class _Telling:
    """Puts one deadlock into words."""

    def __init__(
        self,
        session: Session,
        matched: Matched,
        edges: Sequence[Edge],
        behind: Sequence[Edge],
        is_cycle: bool,
    ) -> None:
        """`behind`: the waits of the victims."""
        self._session = session
        self._edges = edges
        calls = {(edge.text, edge.site) for edge in edges if not self._is_message(edge)}
        self._alike = [edge for edge in behind if (edge.text, edge.site) in calls]
        self._is_cycle = is_cycle
        self._groups = {self._group(edge) for edge in edges}
        taken = taken_messages(session, edges)
        # A rank whose message was taken by another recv has sent it.
        unsent = unsent_messages(session, edges) if not taken else []
        relayed = [] if taken or unsent else not_relayed_messages(session, edges)
        unmatched = unmatched_messages(session, edges, behind)
        if taken:  # that another rank sends as well is no evidence beside it
            unmatched = [miss for miss in unmatched if miss.advice]
        apart = not_mutual(session, edges) if is_cycle and not taken else []
        kinds = {edge.text.partition(" ")[0] for edge in edges}
        is_mixed = kinds == {"send", "recv"} and len(self._groups) == 1
        is_one_call = is_mixed and _are_in_one_call(session, edges)
        self._ring = _ring_of(edges) if is_cycle and is_one_call else ""
        if self._ring:  # each meets its other neighbor later: a send to that one is no evidence
            unmatched = [miss for miss in unmatched if miss.advice]
        self._misses: list[WrongPeerFact] = [*apart, *taken, *unmatched, *unsent, *relayed]
        self._misses = (
            calls_of_no_member(session, [*edges, *behind])
            or self._misses
            or mixed_groups(session, edges, behind)
            or unanswered_messages(session, edges)
            or one_more_message(session, edges)
            or one_answer_more(session, edges)
            or not_sent_there(session, edges)
            or not_exchanged(session, edges)
        )
        if not any(miss.cause for miss in self._misses):
            self._misses = paired_apart(session, matched, edges) or self._misses

    def finding(self, core: Sequence[int], victims: tuple[int, ...]) -> Finding:
        edges = self._edges
        everybody = {*core, *victims}
        what = self._what(core)
        odd = set(next((miss.odd for miss in self._misses if miss.cause), ())) & everybody
        causes = odd or set(core)
        return Finding(
            kind=FindingKind.DEADLOCK,
            severity=Severity.ERROR,
            what=what,
            ranks=tuple(sorted(causes)),
            victims=tuple(sorted(everybody - causes)),
            group=min(self._groups) if len(self._groups) == 1 else "",
            at_ns=max((edge.since_ns for edge in edges if edge.since_ns is not None), default=None),
            evidence=(
                *_all_evidence(self._session, [*edges, *self._alike])[:_MAX_SHOWN],
                *(miss.evidence for miss in self._misses[:_MAX_SHOWN]),
            ),
            edges=tuple(edges),
            advice=self._advice(),
            traits=frozenset((Trait.ONE_PLACE,)) if self._is_at_one_place(what) else NO_TRAITS,
        )

    def _is_at_one_place(self, what: str) -> bool:
        """Whether all wait in one call, and its line stands in the first one, which has room for one."""
        places = {edge.site.partition(" (")[0] for edge in self._edges}
        has_cause = self._ring or any(miss.cause for miss in self._misses)
        if len(places) > 1 or len(self._edges) < 2 or has_cause:
            return False
        place = places.pop()
        return bool(place) and f" at {place}" in what

    def _group(self, edge: Edge) -> str:
        group = None if edge.op is None else self._session.group_of(edge.op)
        return "" if group is None else group.label

    def _what(self, core: Sequence[int]) -> str:
        count = len(core)
        if count == 1:
            head = f"rank {core[0]} waits for itself: "
        elif self._is_cycle:
            head = f"ranks {format_ranks(core)} are deadlocked (cycle of {count} ranks): "
        else:
            head = f"ranks {format_ranks(core)} are deadlocked: "
        miss = next((miss for miss in self._misses if miss.cause), None)
        if miss is not None and count > 1:
            ranks = sorted({*core, *miss.odd, *miss.affected} if miss.affected else core)
            return fit(
                f"ranks {format_ranks(ranks)} are deadlocked: {miss.cause[0]}", *miss.cause[1:]
            )
        if count == 1:
            return head + self._short(self._edges[0])
        if self._ring:
            return fit(
                f"ranks {format_ranks(core)} are deadlocked: each waits for a neighbor, {self._ring}",
                f" ({', '.join(self._kinds())})",
            )
        cycle = _uniform_cycle(self._edges, MAX_LINE - len(head)) if self._is_cycle else ""
        if cycle and len(self._groups) == 1 and self._has_one_tag():
            return head + cycle
        brief = f"ranks {format_ranks(core)} are deadlocked: "
        for start, has_sites in ((head, True), (head, False), (brief, False)):
            whole = start + ", ".join(self._folded(has_sites=has_sites))
            if len(whole) <= MAX_LINE:
                return whole
        words = [self._short(edge) for edge in self._edges[:_MAX_SHOWN]]
        return head + _fitted(words, len(self._edges), MAX_LINE - len(head))

    def _folded(self, *, has_sites: bool) -> list[str]:
        """'rank 0 in recv from any rank at mw.py:13', 'ranks 1-3 in recv from rank 0 at mw.py:22'."""
        alike: dict[str, list[int]] = {}
        for edge in self._edges:
            site = edge.site.partition(" (")[0] if has_sites else ""
            words = f"{self._short(edge)} at {site}" if site else self._short(edge)
            alike.setdefault(words, []).append(edge.rank)
        if len(alike) == 1 and len(self._edges) > 1:
            return [f"all wait in {words}" for words in alike]
        return [f"{say_ranks(ranks)} in {words}" for words, ranks in alike.items()]

    def _kinds(self) -> list[str]:
        """'rank 0 in send', 'ranks 1-3 in recv'."""
        alike: dict[str, list[int]] = {}
        for edge in self._edges:
            alike.setdefault(edge.text.partition(" ")[0], []).append(edge.rank)
        return [
            f"{say_ranks(ranks)} in {kind}" for kind, ranks in sorted(alike.items(), key=_by_count)
        ]

    def _short(self, edge: Edge) -> str:
        """Without the group where it goes without saying."""
        if len(self._groups) == 1 and self._is_message(edge):
            return edge.text.removesuffix(f" on group '{self._group(edge)}'")
        return edge.text

    def _has_one_tag(self) -> bool:
        ops = (edge.op for edge in self._edges if edge.op is not None)
        return len({self._session.tag_of(op) for op in ops}) <= 1

    def _flags(self, edge: Edge) -> int:
        return 0 if edge.op is None else self._session.ranks[edge.op.rank].ops.flags[edge.op.at]

    def _is_message(self, edge: Edge) -> bool:
        return bool(self._flags(edge) & Flag.MESSAGE)

    def _advice(self) -> str:
        messages = [edge for edge in self._edges if self._is_message(edge)]
        asides = [edge for edge in self._edges if self._flags(edge) & Flag.ASIDE]
        advice = next((miss.advice for miss in self._misses if miss.advice), "")
        if advice:
            return advice
        if self._ring:
            return _RING
        if _is_for_another(self._misses):
            return _UNMET
        if asides and asides[0].op is not None:
            kind = self._session.kind_of(asides[0].op)
            all_of_them = _NOT_MEMBERS if kind == "new_group" else ""
            return Advice(
                f"all ranks of the group have to call {kind}{all_of_them}: {say_ranks(asides[0].on, 3)} "
                f"did not call it",
                *((Trait.SOME_ALONE,) if all_of_them else ()),
            )
        if any(edge.is_any for edge in messages):
            return _ANY
        if not messages:
            return _GROUPS
        if len(messages) < len(self._edges):
            return _MIXED
        kinds = {self._session.kind_of(edge.op) for edge in messages if edge.op is not None}
        # A rank that has begun its recv and goes on to wait for it has sent before that, if it had to.
        has_begun = any(
            edge.op is not None and _begun_elsewhere(self._session, edge) for edge in messages
        )
        is_one_line = len({edge.site for edge in messages}) == 1 and not has_begun
        return _NOBODY_SENDS if kinds == {"recv"} and not is_one_line else MESSAGES


def _are_in_one_call(session: Session, edges: Sequence[Edge]) -> bool:
    """Whether all are in the same call of one function, an exchange say: then each of them is meant."""
    stacks = {session.stack_of(edge.op) for edge in edges if edge.op is not None}
    callers = {(stack[:1] and stack[0].function, stack[1:]) for stack in stacks}
    return len(callers) == 1 and all(len(stack) > 1 for stack in stacks)


def _by_count(part: tuple[str, list[int]]) -> tuple[int, list[int]]:
    return len(part[1]), part[1]


def _is_for_another(misses: Iterable[WrongPeerFact]) -> bool:
    """Whether one send goes to a rank that asks for another one's message, while its own is waited for."""
    receivers: dict[object, set[int]] = defaultdict(set)
    for miss in misses:
        if len(miss.evidence.ranks) == 2:
            receivers[miss.evidence.op].add(miss.evidence.ranks[1])
    return any(len(ranks) > 1 for ranks in receivers.values())


def _all_evidence(session: Session, edges: Sequence[Edge]) -> list[Evidence]:
    """One for each rank, or for all that wait in the same call for the same ranks."""
    alike: dict[tuple[str, str, str], list[Edge]] = {}
    for edge in edges:
        begun = "" if edge.op is None else site_of(session, edge.op)
        whom = f"{edge.is_any and len(edge.on) > 1} {say_ranks(edge.on)}"
        alike.setdefault((edge.text, f"{edge.site} {begun}", whom), []).append(edge)
    return [_evidence(session, same) for same in alike.values()]


def _evidence(session: Session, same: Sequence[Edge]) -> Evidence:
    edge = same[0]
    begun = "" if edge.op is None else site_of(session, edge.op)
    at = f" at {edge.site}" if edge.site else ""
    if begun and edge.site and begun != edge.site:  # begun there, waited for here
        at += f", begun at {begun}"
    whom = say_ranks(edge.on)
    ranks = [each.rank for each in same]
    text = f"{say_ranks(ranks)} {verb(ranks, 'waits', 'wait')} in {edge.text}{at}"
    if len(edge.on) > 1 or f" {whom} " not in f"{edge.text} ":  # 'recv from rank 1' has said it
        text += f" for {'any of ' if edge.is_any and len(edge.on) > 1 else ''}{whom}"
    return Evidence(
        text=text,
        rank=edge.rank,
        ranks=tuple(ranks) if len(ranks) > 1 else (),
        op=edge.op,
        site=edge.site,
        at_ns=edge.since_ns,
        kind=FactKind.WAIT,
    )


def _begun_elsewhere(session: Session, edge: Edge) -> bool:
    begun = "" if edge.op is None else site_of(session, edge.op)
    return bool(begun and edge.site and begun != edge.site)


def _fitted(words: Sequence[str], count: int, width: int) -> str:
    """The first of `count` words, as many as fit, and how many more there are."""
    shown = len(words)
    while True:
        left = count - shown
        more = f" and {left} more {'wait' if left == 1 else 'waits'}" if left else ""
        text = ", ".join(words[:shown]) + more
        if len(text) <= width or shown == 1:
            return text
        shown -= 1


def _uniform_cycle(edges: Sequence[Edge], most: int) -> str:
    """Draw a cycle in at most so many letters; '' where not all ranks wait alike, each for one other.

    all wait in recv at ring.py:5: 0 <- 3 <- 2 <- 1 <- 0        each receives from the next
    all wait in send: 0 -> 1 -> 0                               each sends to the next
    """
    kinds = {edge.text.partition(" ")[0] for edge in edges}
    if len(kinds) != 1 or any(len(edge.on) != 1 or edge.is_any for edge in edges):
        return ""
    kind = kinds.pop()
    ranks = _around({edge.rank: edge.on[0] for edge in edges})
    if kind not in _ARROWS or len(ranks) != len(edges) or len(ranks) < 2:
        return ""
    sites = {edge.site.partition(" (")[0] for edge in edges}
    at = f" at {sites.pop()}" if len(sites) == 1 and "" not in sites else ""
    head = f"all wait in {kind}{at}: "
    return head + _chain(ranks, _ARROWS[kind], most - len(head))


def _ring_of(edges: Sequence[Edge]) -> str:
    """'0 -> 3 -> 2 -> 1 -> 0' where each of three or more waits for its neighbor, all on one side; else ''.

    Whether it sends or receives: in a ring somebody has to do the other one first.
    """
    if len(edges) < _MIN_RING or any(len(edge.on) != 1 or edge.is_any for edge in edges):
        return ""
    next_of = {edge.rank: edge.on[0] for edge in edges}
    ranks = _around(next_of)
    steps = {(on - rank) % len(edges) for rank, on in next_of.items()}
    is_whole = sorted(next_of) == list(range(len(edges)))
    if len(ranks) != len(edges) or not is_whole or steps not in ({1}, {len(edges) - 1}):
        return ""
    return _chain(ranks, " -> ", _MAX_RING_TEXT)


def _around(next_of: dict[int, int]) -> list[int]:
    """Follow the cycle from the smallest rank on; [] where it does not lead back there."""
    ranks: list[int] = []
    seen: set[int] = set()
    at = min(next_of)
    while at in next_of and at not in seen:
        ranks.append(at)
        seen.add(at)
        at = next_of[at]
    return ranks if at == min(next_of) else []


def _chain(ranks: Sequence[int], arrow: str, most: int) -> str:
    """'0 <- 3 <- 2 <- 0'; with '...' for those that there is no room for."""
    names = [str(rank) for rank in ranks]
    shown = len(names)
    while True:
        gap = [] if shown == len(names) else ["..."]
        text = arrow.join([*names[:shown], *gap, names[0]])
        if len(text) <= most or shown == 1:
            return text
        shown -= 1
