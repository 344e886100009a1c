"""Finds the ops of a run whose sides are all known, by a look at each rank before anything is written. Pure.

    sides = Sides()
    for log in start.read(): sides.add(log, session)
    sides.is_known(group, seq)              whether nobody's side of a collective is lost
    sides.way(group, sender, receiver)      how the messages of one direction are numbered; None: not at all

torch's analyzer says of a rank whose entry is not there that it never joined. So a collective of which one
rank's side was overwritten, is damaged or was not asked for must be left out on all ranks; what a rank
never called is not there because it never called it. `Progress.issued_seq` tells the two apart.

Messages: n-th to n-th between two ranks, as the ranks counted them; by tag and in order where a receiver
takes from any rank or where tags differ, which needs that nothing is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.ops import NONE, Ops
from distdbg.diagnose.session import RankLog
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag

_SEND: Final = KIND_LABELS.index("send")
_BESIDE: Final = int(Flag.MESSAGE | Flag.ASIDE)
_FAR: Final = 2**63 - 1

Span = tuple[int, int]
"""First and last."""


@dataclass(frozen=True, slots=True)
class MessageNumbering:
    """How messages from one rank to another are numbered."""

    is_by_order: bool = False
    """Each tag for itself, in the order of the calls; else as the ranks have counted them."""
    first: int = 1
    """The first message of which both sides are there."""
    last: int = _FAR


@dataclass(slots=True)
class _End:
    """The messages of one direction, as one of its ranks has them."""

    first: int = _FAR
    last: int = 0
    count: int = 0
    tags: set[int] = field(default_factory=set)


class FlightRecorderSides:
    """Filled rank by rank."""

    def __init__(self, *, is_cut_short: bool = False) -> None:
        """`is_cut_short`: later ops are there, but were not asked for."""
        self._lost: dict[int, list[Span]] = defaultdict(list)
        self._merged: dict[int, tuple[list[int], list[int]]] = {}
        self._sent: dict[tuple[int, int, int], _End] = defaultdict(_End)
        self._received: dict[tuple[int, int, int], _End] = defaultdict(_End)
        self._ways: dict[tuple[int, int, int], MessageNumbering | None] = {}
        self._is_cut_short = is_cut_short
        #: Group and receiver.
        self._from_any: set[tuple[int, int]] = set()
        self._incomplete: set[int] = set()
        #: Group, sender, receiver and rank: some of these messages were not asked for.
        self._trimmed: set[tuple[int, int, int, int]] = set()

    def add(self, log: RankLog, unreadable: frozenset[int], before: Ops | None = None) -> None:
        """Take in what will be written of one rank.

        Args:
            unreadable: indexes of ops of which too little is there to show them.
            before: all of its ops, where some are not asked for.
        """
        if log.lost.get("ops") or log.lost.get("gaps"):
            self._incomplete.add(log.rank)
        ops = log.ops
        present: dict[int, list[int]] = defaultdict(list)
        for at, (group, seq, flags) in enumerate(zip(ops.group, ops.seq, ops.flags, strict=True)):
            if not flags & _BESIDE:
                if at not in unreadable:
                    present[group].append(seq)
            elif flags & Flag.MESSAGE and group != NONE:
                self._add_message(log.rank, ops, at)
        for group, progress in log.progress.items():
            seqs = present.get(group, [])
            self._lost[group] += _missing(seqs, max(progress.issued_seq, max(seqs, default=0)))

        if before is not None and before is not ops:
            kept = set(ops.number)
            for at, (number, flags) in enumerate(zip(before.number, before.flags, strict=True)):
                if flags & Flag.MESSAGE and number not in kept:
                    self._trimmed.add((*self._way_of(log.rank, before, at), log.rank))

    def _way_of(self, rank: int, ops: Ops, at: int) -> tuple[int, int, int]:
        """Group, sender and receiver."""
        group, peer = ops.group[at], ops.peer[at]
        if ops.kind[at] == _SEND:
            return group, rank, peer
        if peer == NONE:
            self._from_any.add((group, rank))
            peer = ops.source[at]
        return group, peer, rank

    def _add_message(self, rank: int, ops: Ops, at: int) -> None:
        ends = self._sent if ops.kind[at] == _SEND else self._received
        end = ends[self._way_of(rank, ops, at)]
        end.first, end.last = min(end.first, ops.seq[at]), max(end.last, ops.seq[at])
        end.count += 1
        end.tags.add(ops.tag[at])

    # ------------------------------------------------------------------------------- the answers

    def is_known(self, group: int, seq: int) -> bool:
        """Whether no rank's side of a collective is lost."""
        starts, ends = self._merge(group)
        at = bisect_right(starts, seq) - 1
        return at < 0 or seq > ends[at]

    def way(self, group: int, sender: int, receiver: int) -> MessageNumbering | None:
        """None: which send belongs to which recv cannot be told."""
        key = group, sender, receiver
        if NONE in (sender, receiver):
            return None
        if key not in self._ways:
            self._ways[key] = self._find_way(key)
        return self._ways[key]

    def _find_way(self, key: tuple[int, int, int]) -> MessageNumbering | None:
        group, sender, receiver = key
        there = {sender: self._sent.get(key), receiver: self._received.get(key)}
        ends = [end for end in there.values() if end is not None]
        unsure = {
            rank for rank in there if rank in self._incomplete or (*key, rank) in self._trimmed
        }
        tags = set[int]().union(*(end.tags for end in ends))
        if len(tags) > 1 or (group, receiver) in self._from_any:
            return None if unsure else MessageNumbering(is_by_order=True)
        if any(end is None and rank in unsure for rank, end in there.items()):
            return None
        if any(end.count != end.last - end.first + 1 for end in ends):
            return None
        return MessageNumbering(
            first=max(end.first for end in ends),
            last=min(end.last for end in ends) if self._is_cut_short else _FAR,
        )

    def _merge(self, group: int) -> tuple[list[int], list[int]]:
        found = self._merged.get(group)
        if found is None:
            starts: list[int] = []
            ends: list[int] = []
            for first, last in sorted(set(self._lost.get(group, ()))):
                if ends and first <= ends[-1] + 1:
                    ends[-1] = max(ends[-1], last)
                else:
                    starts.append(first)
                    ends.append(last)
            found = self._merged[group] = starts, ends
        return found


def _missing(seqs: Iterable[int], last: int) -> list[Span]:
    """What of 1 to `last` is not there."""
    found = []
    expected = 1
    for seq in sorted(seqs):
        if seq > expected:
            found.append((expected, seq - 1))
        expected = max(expected, seq + 1)
    if last >= expected:
        found.append((expected, last))
    return found
