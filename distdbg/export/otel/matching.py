"""Which send a recv took, by numbers that both sides know: the n-th with a tag from one rank to another.

A record numbers messages by peer, not by tag, and recvs from any by themselves, so both sides count. What
was overwritten before it was counted is guessed only where a pair has used one tag: the number by peer is
then the same. Where it cannot be known (None) a recv has no link; it never has a wrong one:

    tags of a pair were mixed, and messages were overwritten
    recvs from any were overwritten
    a recv was begun while one from any with the same tag was in flight
"""

from __future__ import annotations

from dataclasses import dataclass, field

_Pair = tuple[int, bool, int]
"""Number of the group, whether it is sent, group rank of the peer."""


@dataclass(slots=True)
class _Counted:
    last: int = 0
    is_sure: bool = True
    tags: dict[int, int] = field(default_factory=dict)

    def take(self, tag: int, seq: int) -> int | None:
        gap = seq - self.last - 1
        self.last = max(self.last, seq)
        if gap and not self.tags.keys() <= {tag}:
            self.is_sure = False
        if not self.is_sure:
            return None
        if self.tags.keys() <= {tag}:
            self.tags[tag] = self.last
            return seq
        self.tags[tag] = self.tags.get(tag, 0) + 1
        return self.tags[tag]


class MessageNumbers:
    """Those of one record. Each message is told once, in the order in which they were issued."""

    def __init__(self) -> None:
        self._pairs: dict[_Pair, _Counted] = {}
        #: By group, sender and tag: how many recvs from any it has served.
        self._taken: dict[tuple[int, int, int], int] = {}
        #: By group and tag, the number of the op that takes from any and has not ended.
        self._open: dict[tuple[int, int], int] = {}
        self._unsure: set[tuple[int, int]] = set()
        self._unsure_groups: set[int] = set()
        self._last_any: dict[int, int] = {}

    def send(self, group: int, peer: int, tag: int, seq: int) -> int | None:
        """The number of a send to this peer."""
        return self._pairs.setdefault((group, True, peer), _Counted()).take(tag, seq)

    def recv(self, group: int, peer: int, tag: int, seq: int) -> int | None:
        """The number of a recv from this peer."""
        number = self._pairs.setdefault((group, False, peer), _Counted()).take(tag, seq)
        if (group, tag) in self._open:
            self._unsure.add((group, tag))
        if number is None or not self._is_sure(group, tag):
            return None
        return number + self._taken.get((group, peer, tag), 0)

    def recv_any(self, group: int, tag: int, seq: int, op: int, source: int | None) -> int | None:
        """The number of a recv from any; `source` None: it has not ended, and `end_any` tells."""
        if seq != self._last_any.get(group, 0) + 1:
            self._unsure_groups.add(group)
        self._last_any[group] = max(self._last_any.get(group, 0), seq)
        if (group, tag) in self._open:
            self._unsure.add((group, tag))
        self._open[group, tag] = op
        return None if source is None else self.end_any(group, tag, op, source)

    def end_any(self, group: int, tag: int, op: int, source: int | None) -> int | None:
        """The number of a recv from any that has ended; `source` None: it took nothing."""
        if self._open.get((group, tag)) == op:
            del self._open[group, tag]
        if source is None or not self._is_sure(group, tag):
            return None
        named = self._pairs.get((group, False, source))
        before = named.tags.get(tag, 0) if named is not None else 0
        key = group, source, tag
        self._taken[key] = self._taken.get(key, 0) + 1
        if named is not None and not named.is_sure:
            return None
        return before + self._taken[key]

    def _is_sure(self, group: int, tag: int) -> bool:
        return (group, tag) not in self._unsure and group not in self._unsure_groups
