"""Which ops of a rank were in flight at a moment, and the moments to jump to: errors, deaths, findings. Pure.

A session is looked through once; then bisections do.

All times here are nanoseconds on the session's clock; the columns of a rank have its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

from distdbg.diagnose.failures import failures_of
from distdbg.diagnose.finding import Finding, Severity, Verdict
from distdbg.diagnose.matching import Matched, match
from distdbg.diagnose.ops import NEVER, NONE
from distdbg.diagnose.session import RankLog, Session
from distdbg.tui.replayed import ReplayMark


class RankMoments:
    __slots__ = ("_ended_until", "_never", "_offset", "_ops", "log")

    def __init__(self, log: RankLog) -> None:
        self.log = log
        self._ops = log.ops
        self._offset = log.offset_ns
        #: The latest end of all ops up to each: below the first that is later than a moment all have ended.
        self._ended_until = array("q", accumulate(self._ops.ended_ns, max))
        self._never = array("q", self._ops.in_flight())

    def count(self, at_ns: int) -> int:
        return bisect_right(self._ops.issued_ns, at_ns - self._offset)

    def open(self, at_ns: int) -> list[int]:
        """The indexes of the ops in flight, the oldest first."""
        own_ns = at_ns - self._offset
        issued = bisect_right(self._ops.issued_ns, own_ns)
        ended = self._ops.ended_ns
        first = bisect_right(self._ended_until, own_ns)
        found = [at for at in range(first, issued) if ended[at] > own_ns]
        if self._never:
            found += self._never[: bisect_left(self._never, issued)]
            found.sort()
        return found

    def moved_ns(self, at_ns: int) -> int:
        """When it last issued or ended an op; NEVER."""
        own_ns = at_ns - self._offset
        issued = bisect_right(self._ops.issued_ns, own_ns)
        first = bisect_right(self._ended_until, own_ns)
        last = self._ops.issued_ns[issued - 1] if issued else NEVER
        if first:
            last = max(last, self._ended_until[min(first, issued) - 1] if issued else NEVER)
        ended = self._ops.ended_ns
        for at in range(first, issued):
            if last < ended[at] <= own_ns:
                last = ended[at]
        return NEVER if last == NEVER else last + self._offset

    def next_ns(self, at_ns: int) -> int | None:
        """When it next issues or ends an op."""
        own_ns = at_ns - self._offset
        issued = bisect_right(self._ops.issued_ns, own_ns)
        times = [self._ops.ended_ns[at] for at in self.open(at_ns)]
        times = [time for time in times if time != NEVER]
        if issued < len(self._ops):
            times.append(self._ops.issued_ns[issued])
        return min(times) + self._offset if times else None

    def touching(self, begin_ns: int, end_ns: int) -> range:
        """Indexes among which are all ops that touch the time between, but for those of `never_ended`."""
        first = bisect_left(self._ended_until, begin_ns - self._offset)
        return range(first, max(self.count(end_ns), first))

    def never_ended(self, end_ns: int) -> list[int]:
        """Those issued by then."""
        return self._never[: bisect_left(self._never, self.count(end_ns))].tolist()


class Moments:
    """A whole session; what is costly is made when it is first asked for."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._ranks: dict[int, RankMoments] = {}
        self._matched: Matched | None = None

    def of(self, rank: int) -> RankMoments:
        found = self._ranks.get(rank)
        if found is None:
            found = self._ranks[rank] = RankMoments(self.session.ranks[rank])
        return found

    @property
    def matched(self) -> Matched:
        if self._matched is None:
            self._matched = match(self.session)
        return self._matched

    def issued_seq(self, group: int, rank: int, count: int) -> int:
        """The collective that a rank had issued last on a group when it had issued `count` ops."""
        mine = self.matched.of(group).by_rank.get(rank)
        far = self.session.ranks[rank].progress.get(group)
        if mine is None:  # its ring has none of them any more
            return far.issued_seq if far is not None else 0
        indexes = mine.indexes
        low, high = 0, len(indexes)
        if indexes and indexes[-1] < count:
            return max(mine.last_seq, far.issued_seq if far is not None else 0)
        while low < high:  # as bisect, over holes
            middle = (low + high) // 2
            there = middle
            while there > low and indexes[there] == NONE:
                there -= 1
            if indexes[there] < count:
                low = middle + 1
            else:
                high = there
        return mine.first_seq + low - 1

    def times(self) -> tuple[int, int]:
        """The first and the last moment that anything is known of."""
        first, last = [], []
        for rank, log in self.session.ranks.items():
            offset, ops = log.offset_ns, log.ops
            if len(ops):
                first.append(ops.issued_ns[0] + offset)
                ended = self.of(rank)._ended_until[-1]
                last.append(max(ended, ops.issued_ns[-1]) + offset)
            if log.began_ns:
                first.append(log.began_ns + offset)
            if log.exit_ns != NEVER:
                last.append(log.exit_ns + offset)
            if log.end is not None:
                last.append(log.end.ended_ns + offset)
            if log.activity is not None and log.activity.since_ns > 0:
                last.append(log.activity.since_ns + offset)
        if self.session.now_ns != NEVER:
            last.append(self.session.now_ns)
        begin = min(first, default=max(last, default=0))
        return begin, max([begin, *last])


def stops_of(session: Session, most: int = 1000) -> tuple[ReplayMark, ...]:
    """Errors of ops and ends of ranks, in order; of very many the first."""
    found = [
        ReplayMark(error.at_ns / 1e9, f"rank {rank}: {error.type}")
        for rank, errors in failures_of(session).items()
        for error in errors
        if error.at_ns != NEVER
    ]
    for rank, log in session.ranks.items():
        if log.end is not None and log.end.is_failure:
            at = session.time_ns(rank, log.end.ended_ns)
            found.append(ReplayMark(at / 1e9, f"rank {rank} {log.end.how}"))
    return tuple(sorted(found)[:most])


def stops_in(verdict: Verdict) -> tuple[ReplayMark, ...]:
    """The findings that have a time."""
    return tuple(sorted(_all(verdict.findings)))


def _all(findings: Iterable[Finding]) -> Iterable[ReplayMark]:
    for finding in findings:
        if finding.at_ns not in (None, NEVER):
            assert finding.at_ns is not None
            is_fault = finding.severity is Severity.ERROR
            yield ReplayMark(finding.at_ns / 1e9, finding.what, is_fault)
