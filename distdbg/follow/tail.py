"""Follows the records of one host while they grow: one short read per rank and tick.

Files are not mapped: a truncated file would kill its reader. A record that is torn, replaced or removed is
dropped, and found again if it comes back. Nothing blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from distdbg.errors import RecordError
from distdbg.record.entries import FindingEntry, Group, OpEntry, ProgressEntry, Pulse, WorkWaitEntry
from distdbg.record.folders import SUFFIX
from distdbg.record.format import EventType, Flag, Status
from distdbg.record.reader import RecordFile
from distdbg.record.recorded_frame import RecordedFrame

#: How far back the last op is looked for; before it are marks, spans and findings only.
_MAX_NOTES = 64
#: How many of the last entries are searched for an op that went well: as a rule the first few have one.
_LATEST = (16, 1024)


@dataclass(frozen=True, slots=True)
class CurrentOps:
    """Where a rank stands in its program, as far as its record says."""

    op: OpEntry | None
    """The op it waits in; else one that runs beside it; else the one that it issued last."""
    is_in: bool
    """Whether `op` has not ended."""
    groups: tuple[tuple[Group, ProgressEntry], ...]
    in_flight: tuple[OpEntry, ...] = ()
    """All that have not ended."""
    waits: tuple[WorkWaitEntry, ...] = ()
    """The waits of all threads for ops that they had begun earlier."""
    wait: WorkWaitEntry | None = None
    """The wait of a thread for `op`, which it had begun earlier."""

    @property
    def prompt(self) -> OpEntry | None:
        """What it is at the prompt of a debugger for; None: it is at none."""
        return next((op for op in reversed(self.in_flight) if op.is_prompt), None)

    @property
    def is_waiting(self) -> bool:
        """Whether the rank itself is in the op: one that runs beside the program lets it go on."""
        if not self.is_in or self.op is None:
            return False
        return not self.op.is_async or self.wait is not None

    @property
    def waiting(self) -> list[int]:
        """The numbers of all ops in which a thread waits."""
        awaited = {wait.number for wait in self.waits}
        return [op.number for op in self.in_flight if not op.is_async or op.number in awaited]

    @property
    def site(self) -> RecordedFrame | None:
        """The line of the program that it is at, or was: of the wait, if there is one."""
        if self.wait is not None and self.wait.site is not None:
            return self.wait.site
        return self.op.site if self.op is not None else None


@dataclass(slots=True)
class Past:
    """What is kept of ops that have ended."""

    last: int = 0
    """The number up to which it is known."""
    issuers: set[int] = field(default_factory=set)
    """The threads that have issued ops; the kernel's numbers."""
    asides: dict[tuple[int, int], int] = field(default_factory=dict)
    """By number of the group and kind, the number of the aside that the rank came to last."""
    is_whole: bool = True
    """Whether nothing was overwritten before it was seen."""


class TailedRecord(RecordFile):
    """One record that is being written."""

    def __init__(self, path: Path, inode: int) -> None:
        """RecordError when it is none, or not one yet."""
        super().__init__(path, salvage=True)
        self.name = path.name
        self.inode = inode
        self._current_ops: tuple[Pulse, CurrentOps] | None = None
        self._last_op: OpEntry | None = None
        self._past = Past()

    def current_ops(self) -> CurrentOps:
        """Where the rank stands. Kept until it moves. Costs up to some milliseconds."""
        pulse = self.pulse()
        if self._current_ops is None or self._current_ops[0] != pulse:
            self._current_ops = pulse, self._find_current_ops()
        return self._current_ops[1]

    def glance(self) -> OpEntry | None:
        """The op issued last, by few reads."""
        last = self.pulse().last_number
        for number in range(last, max(0, last - _MAX_NOTES), -1):
            event = self.event(number)
            if isinstance(event, OpEntry):
                self._last_op = event
                break
        return self._last_op

    def in_flight(self) -> list[OpEntry]:
        """All ops that have not ended, the oldest first."""
        _, numbers = self.survey()
        events = (self.event(number) for number in numbers)
        return [event for event in events if isinstance(event, OpEntry) and event.ended_ns is None]

    def state_words(self) -> tuple[str | None, str]:
        """How the rank says it leaves ('left', 'returned', 'raised'), and its exception's words."""
        state = self.state()
        return (state.exit.name.lower() if state.exit else None), state.exit_text or ""

    def past(self) -> Past:
        """What has to be known of the ops that have ended. Costs by how many are new."""
        past = self._past
        last, issued = self.issued(past.last)
        past.is_whole = past.is_whole and self._is_complete(past.last, last)
        past.last = last
        for op in issued:
            past.issuers.add(op.thread)
            if op.flags & Flag.ASIDE:
                key = (op.group, op.kind)
                past.asides[key] = max(past.asides.get(key, 0), op.seq)
        return past

    def _is_complete(self, after: int, last: int) -> bool:
        """Whether the ring still has all that came between; whose place is taken next may be torn."""
        return last - after < self.ring_count

    def findings(self, after: int, most: int) -> list[FindingEntry]:
        """The errors and findings among them, whose words `texts` gives, with their times."""
        notes = self.notes(after, most, EventType.FINDING)
        return [note for note in notes if isinstance(note, FindingEntry)]

    def last_good_ns(self) -> int | None:
        """When the newest op was issued that went well; None: none of those issued last did."""
        for most in _LATEST:
            for op in reversed(self.recent(0, most)):
                if op.status == Status.OK:
                    return op.issued_ns
        return None

    def is_in(self, number: int) -> bool:
        """Whether the op of this number has not ended."""
        op = self.event(number)
        return isinstance(op, OpEntry) and op.ended_ns is None

    def _find_current_ops(self) -> CurrentOps:
        groups = self.groups()
        unended = self.in_flight()
        waits = {wait.number: wait for wait in self.work_waits()}
        waiting = [op for op in unended if not op.is_async or op.number in waits]
        if waiting:
            wait = waits.get(waiting[-1].number)
            return CurrentOps(
                waiting[-1], True, groups, tuple(unended), tuple(waits.values()), wait
            )
        if unended:
            return CurrentOps(unended[-1], True, groups, tuple(unended), tuple(waits.values()))
        return CurrentOps(self.glance(), False, groups)


class RecordTail:
    """The records in one folder that the ranks of one host write."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self._host = host
        self.records: dict[int, TailedRecord] = {}
        #: By inode, what is no record of this host: other hosts' ranks.
        self._foreign: set[tuple[str, int]] = set()

    def scan(self) -> list[int]:
        """Look for records that came, went or were replaced; returns the ranks that changed."""
        seen: dict[str, int] = dict(self._entries())
        changed = []
        for rank, record in list(self.records.items()):
            if seen.get(record.name) != record.inode:
                self.drop(rank)
                changed.append(rank)
        known = {record.name for record in self.records.values()}
        for name, inode in seen.items():
            if name in known or (name, inode) in self._foreign:
                continue
            try:
                record = TailedRecord(self.folder / name, inode)
            except RecordError:
                continue  # not whole yet; looked at again
            rank = record.header.rank
            if record.header.host != self._host or rank in self.records:
                self._foreign.add((name, inode))
                record.close()
                continue
            self.records[rank] = record
            changed.append(rank)
        return sorted(set(changed))

    def drop(self, rank: int) -> None:
        """Forget a record, until a scan finds it again."""
        record = self.records.pop(rank, None)
        if record is not None:
            record.close()

    def close(self) -> None:
        for rank in list(self.records):
            self.drop(rank)

    def _entries(self) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(self.folder) as found:
                for entry in found:
                    if entry.name.startswith("rank") and entry.name.endswith(SUFFIX):
                        yield entry.name, entry.inode()
        except OSError:
            return  # removed with all that was in it
