"""Finds the first and last rank in each collective, and counts the two ends of messages alike.

    arrivals = Arrivals()
    for log in start.read():                  the first of two readings
        arrivals.add(log)
    arrivals.last_of(group, seqs)             ranks; -1 where nobody is known to have been last

A trace names the rank that others waited for, though it never holds two ranks at once: what is kept of a
collective is 24 bytes, whatever its group's size. The n-th send of one rank to another meets the n-th recv
there that has its tag. Of a pair that uses one tag the records number them; of one that uses several, or of
a receiver that takes from any, they are counted, which needs records that have lost nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from distdbg.diagnose.ops import NEVER, NONE
from distdbg.export.run_clock import to_run_clock
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distdbg.diagnose.ops import Ops
    from distdbg.diagnose.session import RankLog

SEND: Final = KIND_LABELS.index("send")
#: A seq so far from the first of its group is damage, not an op.
_MAX_SPAN: Final = 1 << 24
_NO_COLLECTIVE: Final = Flag.MESSAGE | Flag.ASIDE
_LATE: Final = 2**63 - 1


class _Group:
    """The collectives of one group, by seq from `base` on."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.first_ns = np.empty(0, np.int64)
        self.last_ns = np.empty(0, np.int64)
        self.first = np.empty(0, np.int32)
        self.last = np.empty(0, np.int32)

    def add(self, rank: int, seqs: NDArray[np.int64], issued_ns: NDArray[np.int64]) -> None:
        low, high = int(seqs.min()), int(seqs.max())
        if max(high, self.base + len(self.first)) - min(low, self.base) >= _MAX_SPAN:
            return
        if not len(self.first):
            self.base = low
        if low < self.base:
            self._grow(self.base - low, 0)
            self.base = low
        if high >= self.base + len(self.first):
            self._grow(0, high - self.base - len(self.first) + 1)
        at = seqs - self.base
        earlier = issued_ns < self.first_ns[at]
        self.first_ns[at[earlier]] = issued_ns[earlier]
        self.first[at[earlier]] = rank
        later = issued_ns > self.last_ns[at]
        self.last_ns[at[later]] = issued_ns[later]
        self.last[at[later]] = rank

    def _grow(self, before: int, behind: int) -> None:
        pad = (before, behind)
        self.first_ns = np.pad(self.first_ns, pad, constant_values=_LATE)
        self.last_ns = np.pad(self.last_ns, pad, constant_values=NEVER)
        self.first = np.pad(self.first, pad, constant_values=NONE)
        self.last = np.pad(self.last, pad, constant_values=NONE)


class Arrivals:
    """The arrivals of one start of a job."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self.issued: dict[int, dict[int, int]] = {}
        """By group and rank, the seq of the collective that it issued last."""
        self.has_clocks = True
        """Whether times of ranks can be compared."""
        self._tags: dict[tuple[int, int, int], int] = {}
        #: Pairs (group, sender, receiver) with several tags; receivers (group, rank) that take from any.
        self._mixed: set[tuple[int, int, int]] = set()
        self._from_any: set[tuple[int, int]] = set()
        self._lost: set[int] = set()

    def add(self, log: RankLog) -> None:
        ops = log.ops
        self.has_clocks &= log.clock_error_ns is not None or not len(ops)
        for index, far in log.progress.items():
            self.issued.setdefault(index, {})[log.rank] = far.issued_seq
        if not len(ops):
            return
        if log.lost.get("ops") or log.lost.get("gaps"):
            self._lost.add(log.rank)
        flags = np.frombuffer(ops.flags, np.uint8)
        groups = np.frombuffer(ops.group, np.int32)
        seqs = np.frombuffer(ops.seq, np.int64)
        issued_ns = to_run_clock(np.frombuffer(ops.issued_ns, np.int64), log.offset_ns)
        plain = (flags & _NO_COLLECTIVE) == 0
        for index in np.unique(groups[plain]).tolist():
            mine = plain & (groups == index)
            group = self._groups.setdefault(index, _Group(0))
            group.add(log.rank, seqs[mine], issued_ns[mine])
        if (flags & Flag.MESSAGE).any():
            self._add_messages(log.rank, ops, flags)

    def _add_messages(self, rank: int, ops: Ops, flags: NDArray[np.uint8]) -> None:
        where = np.flatnonzero(flags & Flag.MESSAGE)
        kinds, peers = np.frombuffer(ops.kind, np.uint8), np.frombuffer(ops.peer, np.int32)
        groups, tags = np.frombuffer(ops.group, np.int32), np.frombuffer(ops.tag, np.int64)
        rows = np.stack([groups[where], kinds[where] == SEND, peers[where], tags[where]], axis=1)
        for group, is_send, peer, tag in np.unique(rows, axis=0).tolist():
            if peer == NONE:
                self._from_any.add((group, rank))
                continue
            pair = (group, rank, peer) if is_send else (group, peer, rank)
            if self._tags.setdefault(pair, tag) != tag:
                self._mixed.add(pair)

    def first_of(self, group: int, seqs: NDArray[np.int64]) -> NDArray[np.int32]:
        """The rank that came first to each of these collectives; -1."""
        known = self._groups.get(group)
        return self._look_up(known, known.first if known else None, seqs)

    def last_of(self, group: int, seqs: NDArray[np.int64]) -> NDArray[np.int32]:
        """The rank that came last to each of these collectives, as far as it is known; -1."""
        known = self._groups.get(group)
        return self._look_up(known, known.last if known else None, seqs)

    @staticmethod
    def _look_up(
        known: _Group | None, ranks: NDArray[np.int32] | None, seqs: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        found = np.full(len(seqs), NONE, np.int32)
        if known is None or ranks is None:
            return found
        at = seqs - known.base
        inside = (at >= 0) & (at < len(ranks))
        found[inside] = ranks[at[inside]]
        return found

    def missing(self, group: int, seq: int, members: tuple[int, ...]) -> tuple[int, ...]:
        """The members that have not come to this collective, by how far each says that it is."""
        issued = self.issued.get(group, {})
        return tuple(rank for rank in members if issued.get(rank, 0) < seq)

    def number_messages(self, rank: int, ops: Ops) -> dict[int, tuple[int, int, int, int, int]]:
        """Group, sender, receiver, tag and number of the messages whose other end has the same."""
        counts: Counter[tuple[int, int, int, int]] = Counter()
        found = {}
        where = np.flatnonzero(np.frombuffer(ops.flags, np.uint8) & Flag.MESSAGE)
        for at in where.tolist():
            is_send = ops.kind[at] == SEND
            peer = ops.peer[at]
            if peer == NONE and not is_send:
                peer = ops.source[at]
            if peer == NONE:
                continue
            group, tag = ops.group[at], ops.tag[at]
            pair = (group, rank, peer) if is_send else (group, peer, rank)
            counts[*pair, tag] += 1
            if pair in self._mixed or (group, pair[2]) in self._from_any:
                if rank in self._lost or peer in self._lost:
                    continue
                found[at] = (*pair, tag, counts[*pair, tag])
            else:
                found[at] = (*pair, tag, ops.seq[at])
        return found
