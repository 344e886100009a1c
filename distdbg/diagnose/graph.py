"""Deadlocks in a graph of nodes that wait for all, or for any, of others. Pure.

    deadlocks = find_deadlocks({0: [WaitFor((1,))], 1: [WaitFor((0, 2))], 2: [WaitFor((1,))]})
    deadlocks.cores      ((0, 1),)    the smallest sets whose members wait for each other alone
    deadlocks.victims    ((2,),)      by core: who can go on only when its members can

Nodes are ranks, or anything that can be a key; each has a list of waits, one per thread. A wait for all
is over when all of its `on` can move, one for any when one of them can; a node moves when one of its
waits is over. A node without waits can move, whatever it does now; a node that is `gone` never will.

    blocked    can never move, whatever the others do: what the least fixpoint of "can move" leaves
    deadlocked    blocked, and by each other: the largest set of which each member has, in each of its waits,
               somebody of the set to wait for (wait for all) or nobody alive but the set (wait for any).
               A wait for a rank that is gone is none: it ends with an error, or has a finding of its own
    core       a part of the deadlocked for which the same holds, and for no part of it: take one of it
               away, and the rest can go on

Nodes in one collective share the `on` of it: give them the same tuple and it is looked at once, so that a
collective of n ranks is n edges and not their square. All is iterative, and linear in nodes and edges but
for the search of the shortest cycle and of the smallest core: those stop improving at a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

Node = TypeVar("Node", bound=Hashable)
NodeIn = TypeVar("NodeIn", bound=Hashable, covariant=True)

#: Edges looked at for smaller cores, in one deadlock.
_MAX_STEPS: Final = 500_000


class Waiting(Protocol[NodeIn]):
    """What a node waits for; `finding.Edge` is one."""

    @property
    def on(self) -> tuple[NodeIn, ...]: ...

    @property
    def is_any(self) -> bool: ...


class WaitFor(NamedTuple):
    """A wait of which nothing is known but for whom."""

    on: tuple[Hashable, ...]
    is_any: bool = False


@dataclass(frozen=True, slots=True)
class UnresolvableWaits(Generic[Node]):
    """What can never go on. Nodes are in the order of `waits` where nothing else is said."""

    blocked: tuple[Node, ...]
    deadlocked: tuple[Node, ...]
    cores: tuple[tuple[Node, ...], ...]
    """Where one is a cycle: each waits for the next, the last for the first."""
    cycles: tuple[bool, ...]
    """By core: whether it is a cycle of waits for one or for all."""
    victims: tuple[tuple[Node, ...], ...]
    """By core; who waits for several is with one of them."""


def find_deadlocks(
    waits: Mapping[Node, Sequence[Waiting[Node]]], gone: Collection[Node] = ()
) -> UnresolvableWaits[Node]:
    """Find who can never go on, and the smallest sets that are the reason."""
    graph = _Graph(waits, gone)
    blocked = graph.closed(range(len(graph.nodes)), counts_gone=True)
    deadlocked = graph.closed(blocked)
    cores = sorted(_find_cores(graph, deadlocked), key=lambda core: min(core[0]))
    followers = _victims(graph, deadlocked, [core for core, _ in cores])
    name = graph.nodes
    return UnresolvableWaits(
        blocked=tuple(name[i] for i in sorted(blocked)),
        deadlocked=tuple(name[i] for i in sorted(deadlocked)),
        cores=tuple(tuple(name[i] for i in core) for core, _ in cores),
        cycles=tuple(is_cycle for _, is_cycle in cores),
        victims=tuple(tuple(name[i] for i in mine) for mine in followers),
    )


@dataclass(slots=True)
class _Need:
    """One `on`, shared by all that wait for it. Nodes are indexes."""

    is_any: bool
    on: list[int]
    """Those that wait themselves."""
    is_free: bool
    """Whether one of the others can move."""
    has_gone: bool

    def count(self, inside: int, counts_gone: bool) -> int:
        """How many of `inside`, who are those of `on` that may be held up, have to move to end it."""
        if self.is_any:
            is_shut = not self.is_free and inside == len(self.on) and (inside > 0 or counts_gone)
            return int(is_shut)
        if self.has_gone and not counts_gone:
            return 0
        return inside + self.has_gone


class _Graph(Generic[Node]):
    """The nodes that wait, by index, and what they need."""

    def __init__(
        self, waits: Mapping[Node, Sequence[Waiting[Node]]], gone: Collection[Node]
    ) -> None:
        dead = frozenset(gone)
        self.nodes = [node for node, mine in waits.items() if mine and node not in dead]
        index = {node: i for i, node in enumerate(self.nodes)}
        self.needs: list[_Need] = []
        #: By node: what it needs, one of which is enough.
        self.of: list[list[int]] = []
        seen: dict[tuple[int, bool], int] = {}
        for node in self.nodes:
            mine = []
            for wait in waits[node]:
                key = (id(wait.on), wait.is_any)  # `waits` keeps it alive
                if key not in seen:
                    seen[key] = len(self.needs)
                    self.needs.append(_read(wait, index, dead))
                mine.append(seen[key])
            self.of.append(mine)

    def closed(self, nodes: Iterable[int], counts_gone: bool = False) -> set[int]:
        """The largest part of `nodes` that cannot move although all others can."""
        left = set(nodes)
        users: dict[int, list[int]] = {}
        for i in left:
            for number in self.of[i]:
                users.setdefault(number, []).append(i)
        #: By need: how many of `on` have to move before it is over.
        missing: dict[int, int] = {}
        wanted: dict[int, list[int]] = {}
        over = []
        for number in users:
            need = self.needs[number]
            inside = [i for i in need.on if i in left]
            count = need.count(len(inside), counts_gone)
            missing[number] = count
            if count == 0:
                over.append(number)
            for i in inside:
                wanted.setdefault(i, []).append(number)
        while over:
            for i in users[over.pop()]:
                if i not in left:
                    continue
                left.discard(i)
                for number in wanted.get(i, ()):
                    missing[number] -= 1
                    if missing[number] == 0:
                        over.append(number)
        return left


def _read(wait: Waiting[Node], index: Mapping[Node, int], gone: frozenset[Node]) -> _Need:
    on = []
    is_free = has_gone = False
    for node in wait.on:
        if node in gone:
            has_gone = True
        elif node in index:
            on.append(index[node])
        else:
            is_free = True
    return _Need(wait.is_any, list(dict.fromkeys(on)), is_free, has_gone)


# ------------------------------------------------------------------------------------ cores


def _find_cores(graph: _Graph[Node], deadlocked: set[int]) -> list[tuple[list[int], bool]]:
    """One core of each part in which all wait for each other, however many hands between."""
    found = []
    parts = [deadlocked]
    looked_at = 0
    while parts:
        for part in _components(graph, parts.pop()):
            rest = graph.closed(part)
            looked_at += len(part)
            if len(rest) == len(part):
                found.append(_core(graph, rest))
            elif rest and looked_at < _MAX_STEPS:
                parts.append(rest)
            elif rest:
                found.append((sorted(rest), False))
    return found


def _components(graph: _Graph[Node], nodes: set[int]) -> list[list[int]]:
    """The strongly connected components that have a cycle (Tarjan, without recursion)."""
    count = len(graph.nodes)  # a need has the number count + its index
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in sorted(nodes):
        if root in order:
            continue
        path = [(root, iter(graph.of[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while path:
            at, ways = path[-1]
            for way in ways:
                if at < count:
                    way += count
                elif way not in nodes:
                    continue
                if way not in order:
                    order[way] = low[way] = len(order)
                    stack.append(way)
                    on_stack.add(way)
                    path.append((way, iter(_ways(graph, way, count))))
                    break
                if way in on_stack:
                    low[at] = min(low[at], order[way])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[at])
                if low[at] == order[at]:
                    part = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.append(member)
                        if member == at:
                            break
                    if len(part) > 1:
                        found.append(sorted(i for i in part if i < count))
    return found


def _ways(graph: _Graph[Node], at: int, count: int) -> list[int]:
    return graph.of[at] if at < count else graph.needs[at - count].on


def _core(graph: _Graph[Node], part: set[int]) -> tuple[list[int], bool]:
    """A smallest set inside of `part` that cannot move although all others can; whether a cycle."""
    if not _is_plain(graph, part) and _has_choice(graph, part):
        part = _shrink(graph, part)
    if _is_plain(graph, part):
        return _shortest_cycle(graph, part), True
    return sorted(part), False


def _is_plain(graph: _Graph[Node], part: set[int]) -> bool:
    """Whether each node has one wait, for all or for one."""
    for i in part:
        if len(graph.of[i]) > 1:
            return False
        need = graph.needs[graph.of[i][0]]
        if need.is_any and len(need.on) > 1:
            return False
    return True


def _has_choice(graph: _Graph[Node], part: set[int]) -> bool:
    """Whether somebody waits for all of several, of whom one would hold it up; else each needs each."""
    return any(
        not graph.needs[number].is_any and sum(i in part for i in graph.needs[number].on) > 1
        for number in {number for i in part for number in graph.of[i]}
    )


def _shrink(graph: _Graph[Node], part: set[int]) -> set[int]:
    """Take away what can be spared, many at first: one whole round one by one leaves a smallest set."""
    core = set(part)
    steps = 0
    size = max(1, len(core) // 2)
    while size:
        order = sorted(core, reverse=True)
        for low in range(0, len(order), size):
            spared = core.intersection(order[low : low + size])
            if not spared:
                continue
            if steps > _MAX_STEPS:
                return core
            steps += sum(len(graph.needs[number].on) for i in core for number in graph.of[i])
            core = graph.closed(core - spared) or core
        size //= 2
    return core


def _shortest_cycle(graph: _Graph[Node], part: set[int]) -> list[int]:
    """Search among the waits, which many nodes may share; each node has one wait for all."""
    user = {}
    for i in sorted(part, reverse=True):
        user[graph.of[i][0]] = i
    ways = {
        number: sorted({graph.of[i][0] for i in graph.needs[number].on if i in part})
        for number in sorted(user)
    }
    best: list[int] = []
    steps = 0 if any(len(way) > 1 for way in ways.values()) else _MAX_STEPS  # one cycle is all
    for start in ways:
        came_from = {start: start}
        turn = [start]
        depth = 1
        cycle: list[int] = []
        while turn and not cycle and (not best or depth < len(best)):
            following = []
            for number in turn:
                steps += len(ways[number])
                if start in ways[number]:
                    cycle = [number]
                    while cycle[-1] != start:
                        cycle.append(came_from[cycle[-1]])
                    cycle.reverse()
                    break
                for way in ways[number]:
                    if way not in came_from:
                        came_from[way] = number
                        following.append(way)
            turn, depth = following, depth + 1
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
        if steps > _MAX_STEPS or len(best) == 1:
            break
    best = _without_chords(best, ways)
    return _nodes_of(graph, best, part)


def _without_chords(cycle: list[int], ways: Mapping[int, Sequence[int]]) -> list[int]:
    """Shorten a cycle as long as one of its waits also waits for an earlier rank of it."""
    while True:
        size = len(cycle)
        place = {number: at for at, number in enumerate(cycle)}
        shorter = min(
            (
                ((at - place[way]) % size, place[way])
                for at, number in enumerate(cycle)
                for way in ways[number]
                if way in place
            ),
        )
        length, begin = shorter[0] + 1, shorter[1]
        if length == size:
            return cycle
        cycle = [cycle[(begin + i) % size] for i in range(length)]


def _nodes_of(graph: _Graph[Node], cycle: list[int], part: set[int]) -> list[int]:
    """Return for each wait the first node that has it and that the wait before is for."""
    found = []
    for at, number in enumerate(cycle):
        before = graph.needs[cycle[at - 1]]
        found.append(min(i for i in before.on if i in part and graph.of[i][0] == number))
    first = found.index(min(found))
    return found[first:] + found[:first]


# ---------------------------------------------------------------------------------- victims


def _victims(
    graph: _Graph[Node], deadlocked: set[int], cores: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return for each core who of the deadlocked waits for it, also through others."""
    users: dict[int, list[int]] = {}
    wanted: dict[int, list[int]] = {}
    for i in deadlocked:
        for number in graph.of[i]:
            if number not in users:
                for j in graph.needs[number].on:
                    wanted.setdefault(j, []).append(number)
            users.setdefault(number, []).append(i)
    owner = {i: at for at, core in enumerate(cores) for i in core}
    turn = list(owner)
    reached: set[int] = set()
    for i in turn:  # grows
        for number in wanted.get(i, ()):
            if number in reached:
                continue
            reached.add(number)
            for user in users[number]:
                if user not in owner:
                    owner[user] = owner[i]
                    turn.append(user)
    found: list[list[int]] = [[] for _ in cores]
    inside = {i for core in cores for i in core}
    for i, at in sorted(owner.items()):
        if i not in inside:
            found[at].append(i)
    return found
