"""ReplayFeed: a finished run, or a copy of a running one, at any moment of its time.

    feed = ReplayFeed(load_run("runs/0412"))
    feed.seek(at)           what all ranks were in then, from their records alone

Ranks, groups and bars are there at once; what takes longer (the op table, waits, the verdict) is made in a
thread, for the moment that was asked for last, and kept. What was diagnosed at a moment uses nothing that
happened later. Of a session with very many ops the verdict is made for the end, and elsewhere when asked.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from distdbg.diagnose.as_of import session_at
from distdbg.diagnose.finding import Edge, Finding, Severity, Verdict
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose_with_waits
from distdbg.errors import DistError
from distdbg.record.rank_state import RankState
from distdbg.render.short import short_lines
from distdbg.tui.replay.bars import Bars
from distdbg.tui.replay.details import op_detail, rank_detail, stacks_at
from distdbg.tui.replay.moments import Moments, stops_in, stops_of
from distdbg.tui.replay.ops import op_rows
from distdbg.tui.replay.ranks import group_reports, rank_row
from distdbg.tui.replayed import PastFeed, PastLog, ReplayMark
from distdbg.view.feed import Topic
from distdbg.view.groups import group_rows, host_rows
from distdbg.view.snapshot import (
    Bar,
    FeedLink,
    LogRow,
    OpDetail,
    OpKey,
    OpRow,
    RankDetail,
    Snapshot,
    Stacks,
    StoppedAtPrompt,
)
from distdbg.view.waits import wait_rows

#: With more ranks their rows are made in the thread.
_MAX_AT_ONCE: Final = 300
#: With more ops the verdict of a moment is made when somebody asks.
_MAX_DIAGNOSED: Final = 300_000
#: How long the moment has to stay before costly things are made for it.
_REST_S: Final = 0.12
#: A wait this long is worth a word.
_LONG_S: Final = 1.0
_MAX_KEPT: Final = 64
#: A double has no room for nanoseconds of unix time: what happened at a moment is to be seen at it.
_ROUND_NS: Final = 256
_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Reported:
    """What the diagnosis says of one moment."""

    lines: tuple[str, ...] = ()
    verdict: Verdict | None = None
    waits: tuple[Edge, ...] = ()


class ReplayFeed(PastFeed):
    """Implements Feed and Replayed over one session."""

    def __init__(
        self,
        session: Session,
        *,
        title: str = "",
        read_log: Callable[[], Sequence[LogRow]] | None = None,
    ) -> None:
        """`read_log` gives what the ranks printed, in the order of time; it is called in a thread."""
        self.session = session
        self.title = title or session.run or session.source
        self._moments = Moments(session)
        self._bars = Bars(self._moments)
        self._read_log = read_log
        self._log: PastLog | None = None
        self._times = self._moments.times()
        self._is_big = sum(len(log.ops) for log in session.ranks.values()) > _MAX_DIAGNOSED
        self._stops: tuple[ReplayMark, ...] = ()
        self._topics: frozenset[Topic] = frozenset()
        self._reported: OrderedDict[int, _Reported] = OrderedDict()
        self._ops: OrderedDict[int, tuple[OpRow, ...]] = OrderedDict()
        self._asked_ns: int | None = None
        self._at_ns = self._times[1]
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._moved_at = 0.0
        self._is_closed = False
        self._snapshot = self._ranks_at(self._at_ns, Snapshot())
        self._thread = threading.Thread(target=self._run, name="distdbg replay", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------- Feed

    def latest(self) -> Snapshot:
        return self._snapshot

    def want(self, topics: frozenset[Topic]) -> None:
        if topics == self._topics:
            return
        self._topics = topics
        self._move(self._at_ns)

    def seek(self, at: float) -> None:
        begin, end = self._times
        at_ns = min(max(round(at * 1e9) + _ROUND_NS, begin), end)
        if end - at_ns < 4 * _ROUND_NS:
            at_ns = end
        if at_ns != self._at_ns:
            self._move(at_ns)

    def span(self) -> tuple[float, float] | None:
        return self._times[0] / 1e9, self._times[1] / 1e9

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        first, last = int(begin * 1e9), int(end * 1e9)
        return {rank: self._bars.of(rank, first, last) for rank in ranks}

    def log(self) -> Sequence[LogRow]:
        return self._log.until(self._at_ns / 1e9) if self._log is not None else ()

    def op(self, key: OpKey) -> OpDetail | None:
        return op_detail(self._moments, key, self._at_ns)

    def rank(self, rank: int) -> RankDetail | None:
        return rank_detail(self._moments, rank, self._at_ns)

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        return stacks_at(self._moments, ranks, self._at_ns)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_S)

    # ------------------------------------------------------------------------------- Replayed

    def stops(self) -> Sequence[ReplayMark]:
        return self._stops

    def next_moment(self, at: float, by: int) -> float | None:
        at_ns = min(max(round(at * 1e9), self._times[0]), self._times[1])
        if abs(at_ns - self._at_ns) < 4 * _ROUND_NS:
            at_ns = self._at_ns
        ranks = self.session.ranks
        if by > 0:
            times = [
                t for rank in ranks if (t := self._moments.of(rank).next_ns(at_ns)) is not None
            ]
            found = min(times, default=None)
        else:
            before = [self._moments.of(rank).moved_ns(at_ns - 2 * _ROUND_NS) for rank in ranks]
            found = max((t for t in before if t != NEVER), default=None)
        return None if found is None else found / 1e9

    @property
    def is_settled(self) -> bool:
        with self._lock:
            return not self._missing(self._at_ns, self._topics)

    def request_verdict(self) -> None:
        with self._changed:
            self._asked_ns = self._at_ns
            self._changed.notify_all()

    # ------------------------------------------------------------------------------- at a moment

    def _move(self, at_ns: int) -> None:
        with self._changed:
            self._at_ns = at_ns
            self._moved_at = time.monotonic()
            self._changed.notify_all()
            if len(self.session.ranks) <= _MAX_AT_ONCE:
                self._snapshot = self._with_known(self._ranks_at(at_ns, self._snapshot))

    def _ranks_at(self, at_ns: int, before: Snapshot) -> Snapshot:
        """Ranks and groups; what takes longer stays as it was before."""
        session = self.session
        rows = {rank: rank_row(self._moments, rank, at_ns) for rank in session.ranks}
        for rank, row in rows.items():  # whoever compares by identity sees what has changed
            old = before.ranks.get(rank)
            if old == row:
                rows[rank] = old
        hosts = before.hosts or host_rows(log.host for log in session.ranks.values())
        wants_groups = Topic.GROUPS in self._topics
        return replace(
            before,
            at=at_ns / 1e9,
            run=session.run or self.title,
            attempt=session.attempt,
            link=FeedLink.REPLAY,
            began=self._times[0] / 1e9,
            world_size=session.world_size,
            ranks=rows,
            hosts=hosts,
            groups=group_rows(group_reports(self._moments, at_ns))
            if wants_groups
            else before.groups,
            stopped=tuple(
                StoppedAtPrompt(
                    rank=row.rank, host=row.host, why=row.op, site=row.site, at=row.state_at
                )
                for row in rows.values()
                if row.state is RankState.DEBUGGED
            ),
        )

    def _with_known(self, snapshot: Snapshot) -> Snapshot:
        """Add what was made for this moment already."""
        reported = self._reported.get(self._at_ns)
        if reported is not None:
            waits = wait_rows(reported.waits, reported.verdict, snapshot.ranks)
            if waits == snapshot.waits:  # whoever compares by identity sees what has changed
                waits = snapshot.waits
            snapshot = replace(
                snapshot, lines=reported.lines, verdict=reported.verdict, waits=waits
            )
        elif self._is_big:
            snapshot = replace(snapshot, lines=(), verdict=None, waits=())
        ops = self._ops.get(self._at_ns)
        return snapshot if ops is None else replace(snapshot, ops=ops)

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        self._stops = stops_of(self.session)
        shown_ns: int | None = self._at_ns
        shown_topics: frozenset[Topic] = frozenset()
        while True:
            with self._changed:
                while not self._is_closed and not self._has_work(shown_ns, shown_topics):
                    self._changed.wait()
                if self._is_closed:
                    return
                at_ns, topics, rested = self._at_ns, self._topics, time.monotonic() - self._moved_at
            try:
                if (shown_ns, shown_topics) != (at_ns, topics):
                    shown_ns, shown_topics = at_ns, topics
                    if len(self.session.ranks) > _MAX_AT_ONCE:
                        self._publish(at_ns, self._ranks_at(at_ns, self._snapshot))
                elif rested < _REST_S:
                    with self._changed:
                        self._changed.wait(_REST_S - rested)
                else:
                    self._make_one(at_ns, topics)
            except DistError:  # a record that cannot be judged is still to be looked at
                self._keep(self._reported, at_ns, _Reported())

    def _has_work(self, shown_ns: int | None, shown_topics: frozenset[Topic]) -> bool:
        return (shown_ns, shown_topics) != (self._at_ns, self._topics) or bool(
            self._missing(self._at_ns, self._topics)
        )

    def _missing(self, at_ns: int, topics: frozenset[Topic]) -> str:
        if Topic.OPS in topics and at_ns not in self._ops:
            return "ops"
        if Topic.LOG in topics and self._log is None:
            return "log"
        is_wanted = not self._is_big or at_ns in (self._times[1], self._asked_ns)
        return "verdict" if is_wanted and at_ns not in self._reported else ""

    def _make_one(self, at_ns: int, topics: frozenset[Topic]) -> None:
        match self._missing(at_ns, topics):
            case "ops":
                self._keep(self._ops, at_ns, op_rows(self._moments, at_ns))
            case "log":
                lines = list(self._read_log() if self._read_log is not None else self._said())
                self._log = PastLog(lines)
                self._publish(at_ns, replace(self._snapshot))
            case "verdict":
                self._keep(self._reported, at_ns, self._diagnose(at_ns))

    def _keep(self, kept: OrderedDict[int, Any], at_ns: int, value: object) -> None:
        """Keep and show it at once: whoever sees that nothing is missing finds all in the snapshot."""
        with self._changed:
            kept[at_ns] = value
            while len(kept) > _MAX_KEPT:
                # That of the end is the costly one.
                kept.pop(next(key for key in kept if key != self._times[1]))
            self._show(at_ns, self._snapshot)

    def _publish(self, at_ns: int, snapshot: Snapshot) -> None:
        with self._changed:
            self._show(at_ns, snapshot)

    def _show(self, at_ns: int, snapshot: Snapshot) -> None:
        """Make it the latest one, unless another moment is shown by now; with the lock held."""
        if at_ns == self._at_ns:
            self._snapshot = self._with_known(snapshot)

    def _diagnose(self, at_ns: int) -> _Reported:
        then = session_at(self.session, at_ns)
        diagnosed = diagnose_with_waits(then)
        verdict = diagnosed.verdict
        # Where all have given up: who waited for whom until then.
        waits = diagnosed.waits or diagnosed.waits_before
        if at_ns >= self._times[1]:
            self._stops = tuple(sorted({*self._stops, *stops_in(verdict)}))
        return _Reported(
            lines=tuple(short_lines(then, verdict)) if _is_worth_a_word(verdict, at_ns) else (),
            verdict=verdict,
            waits=tuple(edge for edges in waits.values() for edge in edges),
        )

    def _said(self) -> list[LogRow]:
        """The last lines that a session has by itself."""
        rows = [
            LogRow(
                at=None if line.wall_ns is None else line.wall_ns / 1e9,
                ranks=() if line.rank is None else (line.rank,),
                stream="err" if "stderr" in line.source else "out",
                text=line.text,
            )
            for line in self.session.lines
        ]
        return sorted(rows, key=lambda row: row.at or 0.0)


def _is_worth_a_word(verdict: Verdict, at_ns: int) -> bool:
    """Ranks always wait for each other a little; what lasts is worth a word."""
    root: Finding | None = verdict.root
    if root is None:
        return verdict.has_faults
    if root.severity is not Severity.NOTE:
        return True
    return root.at_ns is None or at_ns - root.at_ns >= _LONG_S * 1e9
