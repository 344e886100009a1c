"""What launchers keep in their store to agree on rounds, and how it may change. Pure.

            come            is_ready, complete              come (of one that was in it)
    (none) -----> forming -----------------> complete -----------------------------------> forming
                   number n                   number n                                      number n+1

While a round forms, `nodes` are those that have come, in order, and `former` those of the round
before that are alive and expected back. When it is complete, `nodes` are in the order of their node
ranks and do not change; who is lost or left is noted in `gone`, who comes later in `waiting`. The
first of a round that wants another one begins it, and takes in those that wait, as far as there is room.

Nobody is left behind: a round is not complete before each of the former one has come back, left, or is
taken for dead. The last call is for those that nobody has seen yet, so it is left out when enough of
the former round are back. Those keep their order, so node rank 0 stays where it is while it lives.

All launchers change the whole by compare-and-set of its JSON; no time of any clock is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from distdbg.errors import RendezvousError
from distdbg.launch.rendezvous.round import Closing, NodeFacts

_VERSION = 1
_LONGEST_NBYTES = 8 << 20
_LONGEST_TEXT = 2000
#: How many others a launcher listens to; so the load of large jobs stays in proportion.
_WATCHED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherMember:
    """A launcher, and the place it was told to take; None: any."""

    facts: NodeFacts
    place: int | None = None

    @property
    def name(self) -> str:
        return self.facts.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousState:
    """The agreement, as far as it has come."""

    min_nodes: int
    max_nodes: int
    number: int = 0
    is_complete: bool = False
    nodes: tuple[LauncherMember, ...] = ()
    former: tuple[str, ...] = ()
    waiting: tuple[LauncherMember, ...] = ()
    gone: tuple[str, ...] = ()
    """Those gone from the complete round; while the next one forms, still from that round."""
    closing: Closing | None = None

    @property
    def joined(self) -> tuple[str, ...]:
        """Names of those that have come and not gone."""
        if not self.is_complete:
            return tuple(node.name for node in self.nodes)
        gone = set(self.gone)
        return tuple(node.name for node in self.nodes if node.name not in gone)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of those of the former round that are expected back."""
        joined = set(self.joined)
        return tuple(name for name in self.former if name not in joined)

    @property
    def room(self) -> int:
        """How many more may take part."""
        return max(self.max_nodes - len(self.joined) - len(self.missing), 0)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Everybody who is believed to be alive."""
        return (*self.joined, *self.missing, *(member.name for member in self.waiting))

    def to_json(self) -> str:
        # By hand: asdict() of a thousand launchers takes longer than all the rest of a change.
        closing = None if self.closing is None else asdict(self.closing)
        words = {
            "version": _VERSION,
            "min_nodes": self.min_nodes,
            "max_nodes": self.max_nodes,
            "number": self.number,
            "is_complete": self.is_complete,
            "nodes": [_words(node) for node in self.nodes],
            "former": self.former,
            "waiting": [_words(member) for member in self.waiting],
            "gone": self.gone,
            "closing": closing,
        }
        return json.dumps(words, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """RendezvousError for what is none, or of another version."""
        try:
            if len(text) > _LONGEST_NBYTES:
                raise ValueError(f"it has {len(text)} bytes")
            found: dict[str, Any] = json.loads(text)
            version = found.pop("version")
            if version != _VERSION:
                raise RendezvousError(
                    f"the launchers' agreement has version {version}, this distdbg knows {_VERSION}",
                    hint="run the same distdbg on all hosts",
                )
            closing = found.pop("closing")
            return cls(
                min_nodes=int(found["min_nodes"]),
                max_nodes=int(found["max_nodes"]),
                number=int(found["number"]),
                is_complete=bool(found["is_complete"]),
                nodes=tuple(map(_member, found["nodes"])),
                former=tuple(map(str, found["former"])),
                waiting=tuple(map(_member, found["waiting"])),
                gone=tuple(map(str, found["gone"])),
                closing=None
                if closing is None
                else Closing(
                    reason=str(closing["reason"]),
                    is_well=bool(closing["is_well"]),
                    exit_code=int(closing.get("exit_code", 1)),
                ),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RendezvousError(f"the launchers' agreement cannot be read: {error!r}") from error


def come(state: RendezvousState, member: LauncherMember, after: int) -> RendezvousState:
    """Have a launcher ask for a round above `after`, the last one it took part in (-1: none).

    The same state when it only has to wait, or is in that round already.
    """
    if state.closing is not None:
        return state
    if state.is_complete:
        alive = state.joined
        if not alive or (member.name in alive and state.number <= after):
            return _begin(state, member)
        return state if member.name in alive else _wait(state, member)
    if any(node.name == member.name for node in state.nodes):
        return state
    if member.name not in state.former and state.room == 0:
        return _wait(state, member)
    return replace(
        state, nodes=(*state.nodes, member), waiting=_without(state.waiting, {member.name})
    )


def to_asks(member: LauncherMember, after: int) -> str:
    """Write that `member` wants to `come`, for another launcher to have it do so."""
    return json.dumps([_words(member), after])


def come_as_asked(state: RendezvousState, asks: bytes) -> RendezvousState | None:
    """`come` as `to_asks` says; None when it cannot, or what it says is not understood."""
    try:
        words, after = json.loads(asks)
        member = _member(words)
    except (ValueError, KeyError, TypeError):
        return None
    return come(state, member, int(after)) if taken_by(state, member) is None else None


def is_ready(state: RendezvousState, enough_for_s: float, last_call_s: float) -> bool:
    """Whether a round that forms is complete; there were enough for `enough_for_s` by now."""
    count = len(state.nodes)
    if state.is_complete or state.closing is not None:
        return False
    if count < state.min_nodes or state.missing:
        return False
    if count >= state.max_nodes:
        return True
    former = set(state.former)
    back = sum(node.name in former for node in state.nodes)
    return back >= state.min_nodes or enough_for_s >= last_call_s


def complete(state: RendezvousState) -> RendezvousState:
    """Number those that have come: by place, then as in the former round, then as they came."""
    order = {name: index for index, name in enumerate(state.former)}
    last = len(order)
    nodes = sorted(
        state.nodes,
        key=lambda node: (-1 if node.place is None else node.place, order.get(node.name, last)),
    )
    return replace(state, is_complete=True, nodes=tuple(nodes), former=(), gone=())


def go(state: RendezvousState, names: Iterable[str]) -> RendezvousState:
    """Take launchers out that left, or are dead. The same state when none of them is in it."""
    gone = set(names) & set(state.all_names)
    if not gone:
        return state
    waiting = _without(state.waiting, gone)
    if state.is_complete:
        noted = tuple(node.name for node in state.nodes if node.name in gone)
        already = set(state.gone)
        return replace(
            state,
            waiting=waiting,
            gone=(*state.gone, *(name for name in noted if name not in already)),
        )
    return _take_in(
        replace(
            state,
            nodes=_without(state.nodes, gone),
            former=tuple(name for name in state.former if name not in gone),
            waiting=waiting,
            gone=(*state.gone, *(name for name in state.former if name in gone)),
        )
    )


def close(state: RendezvousState, closing: Closing) -> RendezvousState:
    """End the job for all; the first reason stays."""
    if state.closing is not None:
        return state
    return replace(state, closing=replace(closing, reason=closing.reason[:_LONGEST_TEXT]))


def taken_by(state: RendezvousState, member: LauncherMember) -> LauncherMember | None:
    """Another launcher that has come with the same place."""
    if member.place is None:
        return None
    for node in (*state.nodes, *state.waiting):
        if node.place == member.place and node.name != member.name and node.name not in state.gone:
            return node
    return None


def waiting_count(state: RendezvousState, number: int) -> int:
    """How many wait for a round after `number`; those without room do not count."""
    if state.number > number:
        return max(len(state.nodes), 1)
    if state.number < number or not state.is_complete:
        return 0  # seen before this launcher's round was complete
    return min(len(state.waiting), state.room)


def lost_nodes(state: RendezvousState, number: int) -> tuple[str, ...]:
    """Names of those of round `number` that are gone."""
    is_current = state.number == number and state.is_complete
    is_next = state.number == number + 1 and not state.is_complete
    return state.gone if is_current or is_next else ()


def watched_by(state: RendezvousState, name: str) -> tuple[str, ...]:
    """The launchers that one listens to: those after it in a ring of all, which closes behind the dead."""
    names = list(dict.fromkeys(state.all_names))
    if name in names:
        at = names.index(name)
        names = names[at + 1 :] + names[:at]
    return tuple(names[:_WATCHED])


def _begin(state: RendezvousState, member: LauncherMember) -> RendezvousState:
    """The next round, with its first member."""
    return _take_in(
        replace(
            state,
            number=state.number + 1,
            is_complete=False,
            former=state.joined,
            nodes=(member,),
            waiting=_without(state.waiting, {member.name}),
        )
    )


def _take_in(state: RendezvousState) -> RendezvousState:
    """Let those that wait take part, as far as there is room; first come, first served."""
    room = state.room
    return replace(state, nodes=(*state.nodes, *state.waiting[:room]), waiting=state.waiting[room:])


def _wait(state: RendezvousState, member: LauncherMember) -> RendezvousState:
    if any(other.name == member.name for other in state.waiting):
        return state
    return replace(state, waiting=(*state.waiting, member))


def _without(members: tuple[LauncherMember, ...], names: set[str]) -> tuple[LauncherMember, ...]:
    return tuple(member for member in members if member.name not in names)


def _words(member: LauncherMember) -> dict[str, Any]:
    facts = member.facts
    return {
        "facts": {
            "name": facts.name,
            "addr": facts.addr,
            "host": facts.host,
            "nproc": facts.nproc,
            "role": facts.role,
        },
        "place": member.place,
    }


def _member(found: dict[str, Any]) -> LauncherMember:
    facts = found["facts"]
    place = found["place"]
    return LauncherMember(
        facts=NodeFacts(
            name=str(facts["name"]),
            addr=str(facts["addr"]),
            host=str(facts["host"]),
            nproc=int(facts["nproc"]),
            role=str(facts["role"]),
        ),
        place=None if place is None else int(place),
    )
