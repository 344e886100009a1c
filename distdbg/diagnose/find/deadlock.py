"""Deadlock: ranks that wait for each other so that none of them can go on, whatever the others do.

Proven by `graph`, from waits that leave out whoever may move: a rank of which nothing is known, that runs,
is stopped, or has lost a part of its record; so there is no deadlock by mistake. No time is involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from distdbg.diagnose.finding import Edge, Evidence, Finding, Kind, Severity
from distdbg.diagnose.graph import find_knots
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import MOST_LINE, say_ranks, site_of
from distdbg.errors import format_ranks
from distdbg.record.format import Flag

#: Ranks of a core that evidence is shown of.
_MOST_SHOWN: Final = 16
#: Ranks of whom a recv from any rank may be for that are looked at for a message that does not fit.
_MOST_LOOKED_AT: Final = 64

_MESSAGES: Final = (
    "let one side send while the other receives, by the parity of the rank, "
    "or use isend or batch_isend_irecv"
)
_ANY: Final = (
    "let somebody send before all wait: a recv from any rank ends when one of the others sends"
)
_GROUPS: Final = "use the groups in the same order on all ranks"
_MIXED: Final = "on all ranks, let the messages come before the collective, or all after it"
_ASIDE: Final = "let all ranks of the group come to {} at the same place of the program"
_TAGS: Final = "send and receive in the same order with the same tags, or use isend or irecv"
_WRONG_GROUP: Final = "send and receive the message on the same group"


def find(
    session: Session, matched: Matched, waits: Mapping[int, tuple[Edge, ...]]
) -> list[Finding]:
    """One finding per core; nothing when none is proven."""
    gone = {rank for rank, log in session.ranks.items() if log.is_gone}
    # A recv from any rank of whom one has died ends with an error: its rank can move. So does an op
    # of a group that one of those waited for has destroyed.
    sure = {rank: edges for rank, edges in waits.items() if not _ends_with_an_error(gone, edges)}
    knots = find_knots(sure, gone)
    return [
        _Telling(session, [edge for rank in core for edge in sure[rank]], is_circle).finding(
            core, victims
        )
        for core, is_circle, victims in zip(knots.cores, knots.circles, knots.victims, strict=True)
    ]


def _ends_with_an_error(gone: set[int], edges: Iterable[Edge]) -> bool:
    return any(edge.left or (edge.is_any and not gone.isdisjoint(edge.on)) for edge in edges)


class _Telling:
    """Puts one core into words."""

    def __init__(self, session: Session, edges: Sequence[Edge], is_circle: bool) -> None:
        self._session = session
        self._edges = edges
        self._is_circle = is_circle
        self._groups = {self._group(edge) for edge in edges}
        self._misses = _misses(session, edges) or _crossings(session, edges)

    def finding(self, core: Sequence[int], victims: tuple[int, ...]) -> Finding:
        edges = self._edges
        return Finding(
            kind=Kind.DEADLOCK,
            severity=Severity.ERROR,
            what=self._what(core),
            ranks=tuple(sorted(core)),
            victims=tuple(sorted(victims)),
            group=min(self._groups) if len(self._groups) == 1 else "",
            at_ns=max((edge.since_ns for edge in edges if edge.since_ns is not None), default=None),
            evidence=(
                *map(_evidence, edges[:_MOST_SHOWN]),
                *(miss.evidence for miss in self._misses),
            ),
            edges=tuple(edges),
            advice=self._advice(),
        )

    def _group(self, edge: Edge) -> str:
        group = None if edge.op is None else self._session.group_of(edge.op)
        return "" if group is None else group.label

    def _what(self, core: Sequence[int]) -> str:
        count = len(core)
        if count == 1:
            head = f"rank {core[0]} waits for itself: "
        elif self._is_circle:
            head = f"ranks {format_ranks(core)} wait for each other in a circle of {count}: "
        else:
            head = f"ranks {format_ranks(core)} wait for each other: "
        words = [self._short(edge) for edge in self._edges[:_MOST_SHOWN]]
        return head + _fitted(words, len(self._edges), MOST_LINE - len(head))

    def _short(self, edge: Edge) -> str:
        """Without the group where it goes without saying."""
        if len(self._groups) == 1 and self._is_message(edge):
            return edge.text.removesuffix(f" on group '{self._group(edge)}'")
        return edge.text

    def _flags(self, edge: Edge) -> int:
        return 0 if edge.op is None else self._session.ranks[edge.op.rank].ops.flags[edge.op.at]

    def _is_message(self, edge: Edge) -> bool:
        return bool(self._flags(edge) & Flag.MESSAGE)

    def _advice(self) -> str:
        messages = [edge for edge in self._edges if self._is_message(edge)]
        asides = [edge for edge in self._edges if self._flags(edge) & Flag.ASIDE]
        if self._misses:
            return self._misses[0].advice
        if asides and asides[0].op is not None:
            return _ASIDE.format(self._session.kind_of(asides[0].op))
        if any(edge.is_any for edge in messages):
            return _ANY
        if not messages:
            return _GROUPS
        return _MESSAGES if len(messages) == len(self._edges) else _MIXED


def _evidence(edge: Edge) -> Evidence:
    at = f" at {edge.site}" if edge.site else ""
    whom = say_ranks(edge.on)
    text = f"rank {edge.rank} waits in {edge.text}{at}"
    if len(edge.on) > 1 or f" {whom} " not in f"{edge.text} ":  # 'recv from rank 1' has said it
        text += f" for {'any of ' if edge.is_any and len(edge.on) > 1 else ''}{whom}"
    return Evidence(text=text, rank=edge.rank, op=edge.op, site=edge.site, at_ns=edge.since_ns)


def _fitted(words: Sequence[str], count: int, width: int) -> str:
    """The first of `count` words, as many as fit, and how many more there are."""
    shown = len(words)
    while True:
        more = f" and {count - shown} more" if shown < count else ""
        text = ", ".join(words[:shown]) + more
        if len(text) <= width or shown == 1:
            return text
        shown -= 1


# ---------------------------------------------------------------------------------- near-misses


class _Miss(NamedTuple):
    evidence: Evidence
    advice: str


def _misses(session: Session, edges: Iterable[Edge]) -> list[_Miss]:
    """Messages in flight between two sides that would meet, but for their tag or group."""
    found: dict[frozenset[OpRef], _Miss] = {}
    for edge in edges:
        if edge.op is None or not session.ranks[edge.rank].ops.flags[edge.op.at] & Flag.MESSAGE:
            continue
        for other in _opposite(session, edge.op, edge.on[:_MOST_LOOKED_AT]):
            pair = frozenset((edge.op, other))
            advice = _difference(session, edge.op, other)
            if advice and pair not in found:
                found[pair] = _Miss(_near(session, edge, other), advice)
            if len(found) == _MOST_SHOWN:
                return list(found.values())
    return list(found.values())


def _crossings(session: Session, edges: Sequence[Edge]) -> list[_Miss]:
    """Neighbours in a circle that wait in different groups, of both of which both are members."""
    found: list[_Miss] = []
    for one, other in zip(edges, [*edges[1:], *edges[:1]], strict=True):
        if one.op is None or other.op is None or len(found) == _MOST_SHOWN:
            continue
        if len(edges) == 2 and found:
            break  # the same again
        first, second = session.group_of(one.op), session.group_of(other.op)
        flags = session.ranks[one.rank].ops.flags[one.op.at]
        flags |= session.ranks[other.rank].ops.flags[other.op.at]
        if first is None or second is None or first == second or flags & Flag.MESSAGE:
            continue
        if one.rank in second.ranks and other.rank in first.ranks:
            text = (
                f"rank {one.rank} came to group '{first.label}' before group '{second.label}', "
                f"rank {other.rank} the other way round"
            )
            found.append(
                _Miss(Evidence(text=text, rank=one.rank, op=one.op, site=one.site), _GROUPS)
            )
    return found


def _opposite(session: Session, op: OpRef, peers: Sequence[int]) -> Iterator[OpRef]:
    """What the peers have in flight of the other direction, to or from the rank of the op."""
    wanted = {"send": "recv", "recv": "send"}.get(session.kind_of(op))
    for peer in peers:
        log = session.ranks.get(peer)
        if log is None:
            continue
        for at in log.ops.in_flight():
            other = OpRef(peer, at)
            is_between = log.ops.flags[at] & Flag.MESSAGE and log.ops.peer[at] in (op.rank, NONE)
            if is_between and session.kind_of(other) == wanted:
                yield other


def _difference(session: Session, one: OpRef, other: OpRef) -> str:
    """What to do about it; '' when they differ in nothing."""
    ours, theirs = session.ranks[one.rank].ops, session.ranks[other.rank].ops
    if ours.tag[one.at] != theirs.tag[other.at]:
        return _TAGS
    return _WRONG_GROUP if ours.group[one.at] != theirs.group[other.at] else ""


def _near(session: Session, edge: Edge, other: OpRef) -> Evidence:
    site = site_of(session, other)
    text = f"rank {other.rank} has begun {session.name_of(other)}, rank {edge.rank} {edge.text}"
    return Evidence(text=text, rank=other.rank, op=other, site=site)
