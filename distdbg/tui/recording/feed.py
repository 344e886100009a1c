"""RecordedFeed: what a dashboard saw, at any moment of it. Implements Feed and Replayed."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.errors import UsageError
from distdbg.record.rank_state import RankState
from distdbg.tui.cells import is_fault
from distdbg.tui.recording.reader import Recording, read_entry, read_recording
from distdbg.tui.recording.written import apply, read_bar_line, read_log_line
from distdbg.tui.replayed import PastFeed, PastLog, ReplayMark
from distdbg.view.feed import Topic
from distdbg.view.snapshot import (
    Bar,
    FeedLink,
    LogRow,
    OpDetail,
    OpKey,
    RankDetail,
    RankRow,
    Snapshot,
    Stacks,
)

_OP: Final = re.compile(
    r"(?P<kind>\w+)(?P<rest>.*?)(?: on group '(?P<group>.*?)'(?P<words> \(.*)?)?$"
)
_SEQ: Final = re.compile(r" #(\d+)")
_BROKEN: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
#: A bar between two looks is at least so long.
_CLOSE_S: Final = 10.0


class RecordedFeed(PastFeed):
    """A file of `--record`."""

    def __init__(self, recording: Recording, *, title: str = "") -> None:
        self._recording = recording
        self.title = title or recording.run or recording.title
        self._times = [at for at, _, _ in recording.snapshots]
        self._shown = -1
        self._snapshot = Snapshot()
        self._log = PastLog(())
        self._bars: dict[int, list[Bar]] = {}
        self._stops: tuple[ReplayMark, ...] = ()
        self._is_closed = False
        self.seek(self._times[-1])
        self._thread = threading.Thread(
            target=self._look_through, name="distdbg replay", daemon=True
        )
        self._thread.start()

    @classmethod
    def open(cls, path: Path) -> RecordedFeed:
        """RecordError when it cannot be read."""
        return cls(read_recording(path), title=path.name)

    # ------------------------------------------------------------------------------- Feed

    def latest(self) -> Snapshot:
        return self._snapshot

    def want(self, topics: frozenset[Topic]) -> None:
        pass

    def seek(self, at: float) -> None:
        index = max(bisect_right(self._times, at + 1e-6) - 1, 0)
        moment = min(max(at, self._times[0]), self._times[-1])
        base = self._snapshot if 0 <= self._shown <= index else Snapshot()
        first = self._shown + 1 if 0 <= self._shown <= index else 0
        for start in range(index, first - 1, -1):  # from the last whole one, where that is nearer
            if self._recording.snapshots[start][1]:
                base, first = Snapshot(), start
                break
        for one in range(first, index + 1):
            base = self._apply(base, one)
        self._shown = index
        lacks = "; ".join(self._recording.lacks)
        self._snapshot = replace(
            base,
            at=moment,
            link=FeedLink.REPLAY,
            link_why=lacks,
            run=base.run or self._recording.run,
        )

    def _apply(self, base: Snapshot, index: int) -> Snapshot:
        at, is_whole, line = self._recording.snapshots[index]
        entry = read_entry(line)
        if entry is None:
            return base
        try:
            return apply(Snapshot() if is_whole else base, entry["full" if is_whole else "set"], at)
        except _BROKEN:  # damaged: what was known stays until the next whole one
            return base

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        return {
            rank: [
                bar
                for bar in self._bars.get(rank, ())
                if bar.issued <= end and (bar.ended is None or bar.ended >= begin)
            ]
            for rank in ranks
        }

    def log(self) -> Sequence[LogRow]:
        return self._log.until(self._snapshot.at)

    def op(self, key: OpKey) -> OpDetail | None:
        return None

    def rank(self, rank: int) -> RankDetail | None:
        row = self._snapshot.ranks.get(rank)
        if row is None:
            return None
        at = self._snapshot.at
        past = [bar for bar in self._bars.get(rank, ()) if bar.issued <= at]
        return RankDetail(row=row, history=tuple(reversed(past[-200:])))

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        raise UsageError("a recorded dashboard has no stacks; the records of the run have some")

    def span(self) -> tuple[float, float] | None:
        return self._times[0], self._times[-1]

    def close(self) -> None:
        self._is_closed = True
        self._thread.join(_CLOSE_S)

    # ------------------------------------------------------------------------------- Replayed

    def stops(self) -> Sequence[ReplayMark]:
        return self._stops

    def next_moment(self, at: float, by: int) -> float | None:
        index = bisect_right(self._times, at + 1e-6) - 1
        if by > 0:
            return self._times[index + 1] if index + 1 < len(self._times) else None
        while index >= 0 and self._times[index] >= at - 1e-6:
            index -= 1
        return self._times[index] if index >= 0 else None

    @property
    def is_settled(self) -> bool:
        return not self._thread.is_alive()

    def request_verdict(self) -> None:
        raise UsageError("a recorded dashboard has the verdicts that were made then")

    # ------------------------------------------------------------------------------- the whole file

    def _look_through(self) -> None:
        """Read all of it once: what went wrong when, what was printed, and bars."""
        lines: list[LogRow] = []
        for line in self._recording.log:
            entry = read_entry(line)
            try:
                lines += [read_log_line(row) for row in (entry or {})["log"]]
            except _BROKEN:
                continue
        self._log = PastLog(lines)
        known = self._read_bars()
        sampled, stops, before = _Sampled(), [], Snapshot()
        for index, at in enumerate(self._times):
            if self._is_closed:
                return
            after = self._apply(before, index)
            stops += _new_stops(before, after, at)
            sampled.look(after, at)
            before = after
        bars = sampled.bars()
        self._bars = {
            rank: sorted(known.get(rank) or bars.get(rank) or [], key=lambda bar: bar.issued)
            for rank in {*known, *bars}
        }
        self._stops = tuple(stops)

    def _read_bars(self) -> dict[int, list[Bar]]:
        """Those that the timeline had; of an op that was told twice what was told last."""
        found: dict[int, dict[int, Bar]] = {}
        for line in self._recording.bars:
            entry = read_entry(line)
            try:
                for rank, bars in (entry or {})["bars"].items():
                    mine = found.setdefault(int(rank), {})
                    mine.update((bar.number, bar) for bar in map(read_bar_line, bars))
            except _BROKEN:
                continue
        return {rank: list(bars.values()) for rank, bars in found.items()}


def _new_stops(before: Snapshot, after: Snapshot, at: float) -> list[ReplayMark]:
    stops = []
    if after.lines and (not before.lines or before.lines[0] != after.lines[0]):
        stops.append(ReplayMark(at, after.lines[0]))
    for rank, row in after.ranks.items():
        old = before.ranks.get(rank)
        if old is not row and is_fault(row.state) and (old is None or old.state != row.state):
            stops.append(ReplayMark(at, f"rank {rank}: {row.why or row.state}"))
    return stops


class _Sampled:
    """Bars of ranks whose ops were only seen now and then: what a rank was in, and from when to when."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[str, float]] = {}
        self._bars: dict[int, list[Bar]] = {}
        self._rows: dict[int, RankRow] = {}

    def look(self, snapshot: Snapshot, at: float) -> None:
        for rank, row in snapshot.ranks.items():
            if self._rows.get(rank) is row:
                continue
            self._rows[rank] = row
            op, since = self._open.get(rank, ("", 0.0))
            if op and row.op != op:
                ended = row.moved_at if since < row.moved_at <= at else at
                self._close(rank, op, since, ended, is_lost=is_fault(row.state))
                del self._open[rank]
            if row.op and row.op != op:
                is_in = row.state in (RankState.WAITING, RankState.RUNNING) and row.state_at > 0
                self._open[rank] = row.op, min(row.state_at, at) if is_in else at

    def _close(
        self, rank: int, op: str, since: float, ended: float | None, *, is_lost: bool = False
    ) -> None:
        bars = self._bars.setdefault(rank, [])
        found = _OP.match(op)
        kind, group = (found["kind"], found["group"] or "") if found else ("", "")
        name = kind + found["rest"] + (found["words"] or "") if found else op
        seq = _SEQ.search(op)
        bars.append(
            Bar(
                number=len(bars) + 1,
                kind=kind,
                name=name,
                group=group,
                seq=int(seq[1]) if seq else 0,
                issued=since,
                started=ended if ended is not None else None,
                ended=ended,
                has_failed=is_lost,
            )
        )

    def bars(self) -> dict[int, list[Bar]]:
        """Those that have not ended as well."""
        for rank, (op, since) in list(self._open.items()):
            self._close(rank, op, since, None)
        self._open.clear()
        return self._bars
