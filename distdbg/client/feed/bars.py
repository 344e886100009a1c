"""The ops of a timeline: what agents tell of them, bounded, and given out by time. Pure.

Each rank has its newest `MAX` ops. Of a rank that calls more than are told there is one bar for those
between: without a kind or number, its name says how many they are. Times are brought to the clock of the
dashboard: the wall clock of the job's first host, and from there by how far that is from this one.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from distdbg.record.format import Flag, Status
from distdbg.view.short_words import call_name, message_name
from distdbg.view.snapshot import Bar

MAX: Final = 2000


@dataclass(slots=True)
class _Lane:
    bars: list[Bar] = field(default_factory=list)
    """By number, which is the order in which they were issued."""
    gaps: dict[int, Bar] = field(default_factory=dict)
    """What was not told, by the number of the bar after it."""
    open: set[int] = field(default_factory=set)
    """The numbers of those that have not ended."""


class BarStore:
    """The ops that are kept, by rank."""

    def __init__(self, most: int = MAX) -> None:
        self._most = most
        self._lanes: dict[int, _Lane] = {}

    def add(self, rank: int, columns: Mapping[str, Any], shift_ns: int) -> int:
        """Take in what an agent tells of one rank; how many ops it was. ValueError, ... for garbage.

        `shift_ns` brings its times to the clock of the dashboard.
        """
        new = _read(columns, shift_ns)
        skipped = int(columns.get("skipped", 0))
        lane = self._lanes.setdefault(rank, _Lane())
        last = lane.bars[-1].number if lane.bars else 0
        fresh = [bar for bar in new if bar.number > last]
        for bar in new[: len(new) - len(fresh)]:
            self._replace(lane, bar)
        if skipped and lane.bars and fresh:
            lane.gaps[fresh[0].number] = _between(lane.bars[-1], fresh[0], skipped)
        lane.bars += fresh
        lane.open |= {bar.number for bar in fresh if bar.ended is None}
        if len(lane.bars) > self._most * 5 // 4:
            self._trim(lane)
        return len(new)

    def forget(self, rank: int) -> None:
        """Its process was replaced by another."""
        self._lanes.pop(rank, None)

    def get(self, rank: int, begin: float, end: float) -> list[Bar]:
        """Those that touch the time between, the oldest first."""
        lane = self._lanes.get(rank)
        if lane is None:
            return []
        bars = lane.bars
        last = bisect.bisect_right(bars, end, key=_issued)
        first = bisect.bisect_left(bars, begin, hi=last, key=_issued)
        near = max(0, first - _LONG)
        # One that began long before and is there still is not near.
        found = [bar for bar in bars[:near] if bar.number in lane.open] if lane.open else []
        found += [bar for bar in bars[near:first] if bar.ended is None or bar.ended >= begin]
        if not lane.gaps:
            return found + bars[first:last]
        for bar in bars[first : last + 1]:
            gap = lane.gaps.get(bar.number)
            if gap is not None:
                found.append(gap)
            found.append(bar)
        if last < len(bars):
            found.pop()
        return found

    def _replace(self, lane: _Lane, bar: Bar) -> None:
        at = bisect.bisect_left(lane.bars, bar.number, key=_number)
        if at < len(lane.bars) and lane.bars[at].number == bar.number:
            lane.bars[at] = bar
        if bar.ended is not None:
            lane.open.discard(bar.number)

    def _trim(self, lane: _Lane) -> None:
        del lane.bars[: len(lane.bars) - self._most]
        first = lane.bars[0].number
        lane.open = {number for number in lane.open if number >= first}
        lane.gaps = {number: gap for number, gap in lane.gaps.items() if number > first}


#: How many bars before a moment may reach into it: ops that run beside each other.
_LONG: Final = 64


def _issued(bar: Bar) -> float:
    return bar.issued


def _number(bar: Bar) -> int:
    return bar.number


def _between(before: Bar, after: Bar, skipped: int) -> Bar:
    begin = before.issued if before.ended is None else before.ended
    return Bar(
        number=0,
        kind="",
        name=f"{skipped:,} more ops",
        group="",
        seq=0,
        issued=min(begin, after.issued),
        started=None,
        ended=after.issued,
    )


def _read(columns: Mapping[str, Any], shift_ns: int) -> list[Bar]:
    at_s = (int(columns["at_ns"]) + shift_ns) / 1e9
    groups, kinds = columns["groups"], columns["kinds"]
    rows = zip(
        columns["number"],
        columns["group"],
        columns["kind"],
        columns["seq"],
        columns["peer"],
        columns["flags"],
        columns["issued"],
        columns["started"],
        columns["ended"],
        columns["status"],
        strict=True,
    )
    found = []
    for number, group, kind, seq, peer, flags, issued, started, ended, status in rows:
        word = kinds[kind]
        if flags & Flag.MESSAGE:
            name = message_name(word, None if peer < 0 else peer)
        else:
            name = call_name(word, seq)
        found.append(
            Bar(
                number=number,
                kind=word,
                name=name,
                group=groups[group],
                seq=seq,
                issued=at_s + issued / 1e9,
                started=None if started < 0 else at_s + started / 1e9,
                ended=None if ended < 0 else at_s + ended / 1e9,
                has_failed=status > Status.OK,
            )
        )
    return found
