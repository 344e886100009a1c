"""Ops of a session as bars of a timeline. Where very many lie in one place, those that matter. Pure."""

from __future__ import annotations

from typing import Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag, Status
from distdbg.tui.replay.moments import Moments
from distdbg.view.short_words import call_name, message_name
from distdbg.view.snapshot import Bar

#: Bars of one rank in one window: more than any terminal has places for.
MAX_BARS: Final = 400
_MAX_KNOWN: Final = 400_000
_MAX_THIN: Final = 500


class Bars:
    """The bars of one session; each is made once."""

    def __init__(self, moments: Moments) -> None:
        self._moments = moments
        self._session = moments.session
        self._known: dict[tuple[int, int], Bar] = {}
        self._thin: dict[tuple[int, int, int], list[Bar]] = {}

    def of(self, rank: int, begin_ns: int, end_ns: int) -> list[Bar]:
        """Those that touch the time between, oldest first; thinned out where there are very many."""
        if rank not in self._session.ranks:
            return []
        mine = self._moments.of(rank)
        ops, offset = self._session.ranks[rank].ops, self._session.ranks[rank].offset_ns
        among = mine.touching(begin_ns, end_ns)
        begin = begin_ns - offset
        old = [at for at in mine.never_ended(end_ns) if at < among.start]
        bars = [self._one(rank, at) for at in old]
        if len(among) > MAX_BARS:
            key = rank, among.start, among.stop
            if key not in self._thin:
                if len(self._thin) > _MAX_THIN:
                    self._thin.clear()
                self._thin[key] = self._thinned(rank, among)
            return bars + self._thin[key]
        bars += [
            self._one(rank, at)
            for at in among
            if ops.ended_ns[at] == NEVER or ops.ended_ns[at] >= begin
        ]
        return bars

    def _one(self, rank: int, at: int) -> Bar:
        found = self._known.get((rank, at))
        if found is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            found = self._known[rank, at] = bar_of(self._session, rank, at)
        return found

    def _thinned(self, rank: int, among: range) -> list[Bar]:
        """A bar for each small part of the time: how long its ops waited and moved, named by the longest."""
        import numpy as np

        ops = self._session.ranks[rank].ops
        run = slice(among.start, among.stop)
        begin = np.frombuffer(ops.issued_ns, dtype=np.int64)[run]
        start = np.frombuffer(ops.started_ns, dtype=np.int64)[run]
        end = np.frombuffer(ops.ended_ns, dtype=np.int64)[run]
        how = np.frombuffer(ops.status, dtype=np.uint8)[run]
        is_odd = (how != Status.OK) | (end == NEVER)
        odd = np.flatnonzero(is_odd)[-MAX_BARS:]
        first, last = int(begin.min()), int(begin.max())
        place = (begin - first) * MAX_BARS // (last - first + 1)
        took = np.where(end == NEVER, 0, end - begin)
        waited = np.where(start == NEVER, 0, np.clip(start - begin, 0, took))
        cuts = np.flatnonzero(np.append(True, place[1:] != place[:-1]))
        sums = np.add.reduceat(took, cuts), np.add.reduceat(waited, cuts)
        ends = [*cuts[1:].tolist(), len(among)]
        bars = [self._one(rank, int(at) + among.start) for at in odd]
        offset = self._session.ranks[rank].offset_ns
        rows = zip(cuts.tolist(), ends, sums[0].tolist(), sums[1].tolist(), strict=True)
        for low, high, all_ns, waited_ns in rows:
            if high - low == 1:
                if not is_odd[low]:
                    bars.append(self._one(rank, low + among.start))
                continue
            longest = among.start + low
            longest += (
                int(took[low:high].argmax()) if high - low > 2 else int(took[low] < took[high - 1])
            )
            kind, group, name = named(self._session, rank, longest)
            issued = (ops.issued_ns[among.start + low] + offset) / 1e9
            bars.append(
                Bar(
                    number=ops.number[longest],
                    kind=kind,
                    name=f"{high - low} ops, the longest {name}",
                    group=group,
                    seq=ops.seq[longest],
                    issued=issued,
                    started=issued + waited_ns / 1e9,
                    ended=issued + all_ns / 1e9,
                )
            )
        bars.sort(key=lambda bar: (bar.issued, bar.number))
        return bars


def bar_of(session: Session, rank: int, at: int) -> Bar:
    """One op; also one that a moment in the past has not seen the end of."""
    log = session.ranks[rank]
    ops, offset = log.ops, log.offset_ns
    started, ended, status = ops.started_ns[at], ops.ended_ns[at], ops.status[at]
    kind, group, name = named(session, rank, at)
    return Bar(
        number=ops.number[at],
        kind=kind,
        name=name,
        group=group,
        seq=ops.seq[at],
        issued=(ops.issued_ns[at] + offset) / 1e9,
        started=None if started == NEVER else (started + offset) / 1e9,
        ended=None if ended == NEVER else (ended + offset) / 1e9,
        has_failed=status not in (Status.OK, IN_FLIGHT),
    )


def named(session: Session, rank: int, at: int) -> tuple[str, str, str]:
    """The kind of an op, the name of its group, and what it is called."""
    ops = session.ranks[rank].ops
    kind = session.kind_of(OpRef(rank, at))
    group = ops.group[at]
    if ops.flags[at] & Flag.MESSAGE:
        name = message_name(kind, None if ops.peer[at] == NONE else ops.peer[at])
    else:
        name = call_name(kind, ops.seq[at], session.forms[ops.form[at]].name)
    return kind, "" if group == NONE else session.groups[group].name, name
