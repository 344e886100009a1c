"""All records of this host, followed together: one thread's own readers, one look at a time.

    look at each record -> what the tail has found now -> each looks back for it -> spans and log records

Bounded: a look reads at most `most_rows` rows of each record and makes spans by the budget.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from distdbg.errors import RecordError
from distdbg.export.otel.log_records import (
    find_op,
    log_of_end,
    log_of_error,
    log_of_finding,
    span_of_finding,
)
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.recorded_ops import TracedGroup, TracedRank, facts_of
from distdbg.export.otel.sampling import Budget, Sampler
from distdbg.export.tracing.follower import MAX_ROWS, Follower
from distdbg.export.tracing.head import Head
from distdbg.export.tracing.row import SharedTraceState
from distdbg.export.tracing.tail import TailSampler
from distdbg.export.tracing.trace_events import FindingMade, Made, OpsKept, RankEnded
from distdbg.follow.tail import RecordTail, TailedRecord
from distdbg.hosts.tail_sampling import KeptOp
from distdbg.record.entries import OpEntry
from distdbg.record.known_marks import SOURCE_DROPPED

_SCAN_NS: Final = 500_000_000
#: Spans of the tail in a second, beside those of the head.
_TAIL_PER_S: Final = 100.0
_TAIL_BURST: Final = 500.0
#: A job begins with what it may send in so many seconds: a short one is seen whole.
_BURST_S: Final = 10.0
_MAX_TEXTS: Final = 64
#: The part of a record that is new, from which the next look is to come soon.
_FAST: Final = 1 / 8

_log = logging.getLogger("distdbg.agent")


@dataclass(slots=True)
class _FollowedRank:
    follower: Follower
    inode: int
    texts: int = 0
    """Up to which its words were told."""
    reported: deque[str] = field(default_factory=lambda: deque(maxlen=16))


@dataclass
class HostRecords:
    """The records of one start of the ranks."""

    folder: Path
    host: str
    run: str
    start: int
    sampler: Sampler
    slow_ns: int
    spans_per_s: float
    now_ns: int
    """Monotonic, when this begins."""
    has_spans: bool = True
    """Whether spans are asked for."""
    has_logs: bool = True
    room: float = math.inf
    """How many spans may be made until a trace is the last that may begin; those of the tail may anyway."""
    most_rows: int = MAX_ROWS
    """Rows of each record that one look takes in."""
    is_fast: bool = field(default=False, init=False)
    """Whether a rank would have more new events than its record holds, if the next look were late."""
    _followed: dict[int, _FollowedRank] = field(default_factory=dict)
    _base_ns: int | None = None

    def __post_init__(self) -> None:
        self._tail = RecordTail(self.folder, self.host)
        self._scanned_ns = self.now_ns - _SCAN_NS
        self.shared = SharedTraceState(
            sampler=self.sampler,
            head=Head(self.run, self.start, self.sampler),
            tail=TailSampler(),
            budget=Budget(
                self.spans_per_s,
                self.now_ns,
                burst=_BURST_S * self.spans_per_s,
                has_room=lambda: len(self.shared.made.spans) < self.room,
            ),
            tail_budget=Budget(_TAIL_PER_S, self.now_ns, burst=_TAIL_BURST),
            slow_ns=self.slow_ns,
        )

    def look(self, now_ns: int) -> None:
        if now_ns - self._scanned_ns >= _SCAN_NS:
            self._scanned_ns = now_ns
            self.scan()
        self.shared.budget.tick(now_ns)
        self.shared.tail_budget.tick(now_ns)
        self.is_fast = False
        for rank, watched in list(self._followed.items()):
            try:
                if self.has_spans:
                    share = watched.follower.look(self.most_rows)
                    self.is_fast = self.is_fast or share > _FAST
                if self.has_logs:
                    self._tell_texts(rank, watched)
            except RecordError:
                self._forget(rank)  # cut short; a scan finds it if it comes back
        self._look_back()

    def scan(self) -> None:
        """Look for records that came, went or were replaced."""
        self._tail.scan()
        for rank in list(self._followed):
            record = self._tail.records.get(rank)
            if record is not self._followed[rank].follower.record:
                del self._followed[rank]
        for rank, record in self._tail.records.items():
            if rank not in self._followed:
                self._followed[rank] = _FollowedRank(self._follow(record), record.inode)
        self.shared.ranks = frozenset(self._followed)

    def hear(self, event: RankEnded | FindingMade | OpsKept) -> None:
        """Take in what the agent's loop knows and no record says."""
        match event:
            case RankEnded(end=end):
                self._flush(end.rank, end.wall_ns, end.how)
                if self.has_logs:
                    self.shared.made.logs.append((None, log_of_end(end)))
            case OpsKept(ops=ops):
                for one in ops:
                    self.shared.tail.add(*one)
            case FindingMade():
                self._hear_finding(event)
            case _:
                assert_never(event)

    def take_made(self) -> Made:
        """What was made since this was called last."""
        made, self.shared.made = self.shared.made, Made()
        return made

    def take_unreported(self) -> list[KeptOp]:
        """What other hosts are to keep as well."""
        return self.shared.tail.take_unreported()

    def _flush(self, rank: int, wall_ns: int, how: str) -> None:
        """A rank is gone: what it was in never ends."""
        watched = self._followed.get(rank)
        if watched is None or not self.has_spans:
            return
        try:
            watched.follower.look()
            watched.follower.flush(wall_ns, how)
        except RecordError:
            self._forget(rank)

    def finish(self, now_ns: int, wall_ns: int) -> None:
        """The last look."""
        self.scan()
        self.look(now_ns)
        for rank in list(self._followed):
            self._flush(rank, wall_ns, "")
        if self.has_spans:
            _tell_roots(
                {rank: watched.follower for rank, watched in self._followed.items()}, wall_ns
            )

    def close(self) -> None:
        self._followed.clear()
        self._tail.close()

    def first_rank(self) -> TracedRank | None:
        """The first rank of this host; None: there is none yet."""
        return self._followed[min(self._followed)].follower.rank if self._followed else None

    def _hear_finding(self, event: FindingMade) -> None:
        finding, made = event.finding, self.shared.made
        trace_id, parent_id = find_op(self.run, self.start, event.group, finding.seq)
        log = log_of_finding(
            finding,
            trace_id=trace_id,
            parent_id=parent_id,
            wall_ns=event.wall_ns,
            number=event.number,
        )
        if self.has_logs:
            made.logs.append((None, log))
        if trace_id and self.has_spans:
            self.shared.tail.add(event.group, finding.seq, "found", is_wide=True)
            made.spans.append((None, span_of_finding(log, parent_id=parent_id)))

    # ------------------------------------------------------------------------------- one record

    def _follow(self, record: TailedRecord) -> Follower:
        if self._base_ns is None:  # one clock for all ranks of the host
            self._base_ns = record.header.to_wall_ns(0)
        rank = TracedRank.of(record.header, start=self.start, base_ns=self._base_ns)
        return Follower(record, rank, self.shared)

    def _tell_texts(self, rank: int, watched: _FollowedRank) -> None:
        record = watched.follower.record
        count = record.pulse().text_count
        if count <= watched.texts:
            return
        facts = watched.follower.rank
        groups = {group.desc or group.name: group.name for group, _ in record.groups()}
        wall_ns = record.pulse().heartbeat_ns + facts.base_ns
        for _, words in record.texts(max(watched.texts, count - _MAX_TEXTS)):
            if SOURCE_DROPPED in words:  # helps to judge messages, and is no finding
                continue
            log = log_of_error(
                words, rank=rank, run=self.run, start=self.start, groups=groups, wall_ns=wall_ns
            )
            # What ended the rank is said again, by its type, when it ends.
            if log.body not in watched.reported:
                watched.reported.append(log.body)
                self.shared.made.logs.append((facts, log))
        watched.texts = count

    def _look_back(self) -> None:
        keys = self.shared.tail.take_new()
        if not keys or not self.has_spans:
            return
        for rank, watched in list(self._followed.items()):
            try:
                watched.follower.look_back(keys)
            except RecordError:
                self._forget(rank)

    def _forget(self, rank: int) -> None:
        self._followed.pop(rank, None)
        self._tail.drop(rank)


def _tell_roots(followers: Mapping[int, Follower], wall_ns: int) -> None:
    """Where a collective failed and its group's first rank, of this host, never came: as another saw it."""
    reported: set[tuple[str, int]] = set()
    for follower in followers.values():
        for group, seq, why in follower.failed.values():
            first = group.global_rank(0)
            home = None if first is None else followers.get(first)
            if home is None or (group.name, seq) in reported:
                continue
            with suppress(RecordError):
                root = _root_of(follower, group, seq, why, wall_ns)
                if root is not None and not _has_come(home, group.name, seq):
                    reported.add((group.name, seq))
                    follower.emit(root)


def _has_come(follower: Follower, name: str, seq: int) -> bool:
    """Whether the rank has called this collective."""
    for group, progress in follower.record.groups():
        if group.name == name and progress.issued_seq >= seq:
            return True
    number = follower.groups.number_of(name)
    return number is not None and follower.record.find_op(number, seq) is not None


def _root_of(
    follower: Follower, group: TracedGroup, seq: int, why: str, now_ns: int
) -> SpanData | None:
    number = follower.groups.number_of(group.name)
    number = None if number is None else follower.record.find_op(number, seq)
    event = None if number is None else follower.record.event(number)
    if not isinstance(event, OpEntry):
        return None
    return follower.spans.make_root(facts_of(event, follower.rank, group), why, now_ns)
