"""Chains of waits: the ranks at their ends, which all others wait for. Pure.

    for end in chain_ends(session, waits):
        end.ranks        not blocked themselves, or blocked after they left the group of the wait;
                     the same ranks wait for all of them
        end.direct       the waits that name them
        end.waiters      everybody who waits for them, through others too

A rank that is late because it waits itself is a victim and no end, unless it has destroyed the group of the
op: then it would not call the op even if it went on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from distdbg.diagnose.finding import Edge, Waits
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnd:
    """Ranks for whom the same ranks wait, and who do not wait themselves or have left what they wait in."""

    ranks: tuple[int, ...]
    direct: tuple[Edge, ...]
    waiters: tuple[int, ...]

    @property
    def edge(self) -> Edge:
        """The wait to tell of: of the lowest rank."""
        return self.direct[0]

    @property
    def op(self) -> OpRef | None:
        return self.edge.op

    def waited_in(self, session: Session) -> str:
        """'all_reduce #5 on group 'dp''; '' where the direct waiters do not all wait in one op."""
        ops = {session.name_of(edge.op) if edge.op else edge.text for edge in self.direct}
        return ops.pop() if len(ops) == 1 else ""

    @property
    def since_ns(self) -> int | None:
        """When the first began to wait."""
        return min((e.since_ns for e in self.direct if e.since_ns is not None), default=None)


def chain_ends(session: Session, waits: Waits) -> list[ChainEnd]:
    """The ends of all chains, by the ranks."""
    waits = {rank: waits[rank] for rank in sorted(waits) if waits[rank]}
    # Ranks in one collective wait for the same others: each such set is walked once.
    by_targets: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Edge]] = defaultdict(list)
    for mine in waits.values():
        for edge in mine:
            by_targets[edge.left, _targets(session, edge)].append(edge)
    named: dict[int, list[int]] = defaultdict(list)
    #: By rank and whether it has left: a rank may have left the op of some, and be late for others.
    ended: dict[tuple[int, bool], list[int]] = defaultdict(list)
    sets = list(by_targets.items())
    for index, ((left, targets), _) in enumerate(sets):
        for target in targets:
            named[target].append(index)
            has_left = target in left
            if has_left or target not in waits:
                ended[target, has_left].append(index)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for target, has_left in sorted(ended):
        together[tuple(ended[target, has_left])].append(target)
    ends = []
    for indexes, ranks in together.items():
        direct = tuple(
            sorted((e for i in indexes for e in sets[i][1]), key=lambda e: (e.rank, e.text))
        )
        waiters = _all_waiters({e.rank for e in direct}, named, sets)
        ends.append(
            ChainEnd(ranks=tuple(ranks), direct=direct, waiters=tuple(sorted(waiters - set(ranks))))
        )
    return sorted(ends, key=lambda end: end.ranks)


def _targets(session: Session, edge: Edge) -> tuple[int, ...]:
    """Return whom a wait needs; where one would be enough, ranks that are gone do not count beside others."""
    others = tuple(rank for rank in edge.on if rank != edge.rank)
    if not edge.is_any:
        return others
    alive = tuple(r for r in others if r not in session.ranks or not session.ranks[r].is_gone)
    return alive or others


def _all_waiters(
    first: set[int],
    named: Mapping[int, list[int]],
    sets: Sequence[tuple[object, list[Edge]]],
) -> set[int]:
    found, todo, walked = set(first), list(first), set()
    while todo:
        for index in named.get(todo.pop(), ()):
            if index in walked:
                continue
            walked.add(index)
            for edge in sets[index][1]:
                if edge.rank not in found:
                    found.add(edge.rank)
                    todo.append(edge.rank)
    return found


def sites_of(end: ChainEnd) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """What the direct waiters wait in, each place once: text, site, ranks."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for edge in end.direct:
        places[edge.text, edge.site].append(edge.rank)
    for (text, site), ranks in places.items():
        yield text, site, tuple(ranks)
