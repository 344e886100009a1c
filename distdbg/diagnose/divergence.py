"""Finds where the calls of two ranks on a group diverge, when one of them made fewer. Pure.

    parting = find_parting(session, matched.of(group), group, rank, other, skipped=1)
    parting.seq          the first call that can be distinguished; 0: all that both records have are alike
    parting.sign         by what: LINE, CALL, MARK, SPANS, GROUPS, MESSAGES, TIME

A rank that skips one of many equal calls keeps pairing with the others, as their ops fit its own; the missing
call shows only at the end of its program. Other facts in the records show it earlier: from the skipped call
on, what the rank has at a call is what the other has at a later one (the line, the arrays, the
value of a mark, how far other groups are); or there are twice the marks, spans or messages between two
calls, or twice the time. Time proves nothing: that is only probable (`is_sure`).

Only what two ranks can have in common is compared, from the first call that both records still have; of
longer records their last part. All of it is linear in that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from distdbg.diagnose.matching import GroupOps, RankOps
from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.entries import MarkEntry, SpanBegin
from distdbg.record.format import NO_COLLECTIVE, Flag
from distdbg.record.known_marks import STEP

#: Calls of a group that are looked at, from the last back.
_MAX_COMPARED: Final = 1 << 14
#: How many skipped calls are tried, beside the number that is known: each compares all calls again.
_MAX_SHIFTS: Final = 256
#: A gap is one of its own from so many times the usual on, and all others stay below so many.
_LONG: Final = 1.7
_USUAL: Final = 1.4
#: Fewer gaps, or shorter ones, are noise.
_FEWEST_GAPS: Final = 6
_LEAST_GAP_NS: Final = 1_000_000

Value = Hashable
"""Of one call; None: not known."""


class CallSign(StrEnum):
    """What tells two calls apart."""

    LINE = "line"
    CALL = "arrays"
    CALLER = "caller"
    MARK = "mark"
    GROUPS = "other groups"
    SPANS = "spans"
    MESSAGES = "messages"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """What is known of where two ranks part."""

    rank: int
    other: int
    first: int
    last: int
    """The calls that both records have."""
    seq: int = 0
    """The first that can be distinguished; 0: none can."""
    sign: CallSign | None = None
    skipped: int = 0
    """So many of the other's calls `rank` did not make there; 0: from there on they only differ."""
    mine: Value = None
    theirs: Value = None
    is_sure: bool = True
    is_open: bool = False
    """Whether the last call of `other` could be the last one of `rank`: then any may have been skipped."""
    stopped: Value = None
    """Name and value of the mark, or None: no call before the last was skipped, as it shows."""
    op: OpRef | None = None
    """The call of `rank`."""
    other_op: OpRef | None = None


@dataclass(slots=True)
class _Calls:
    """The calls of one rank on the group, from a seq on."""

    log: RankLog
    first: int
    ats: Sequence[int]
    """Indexes into its columns; -1: a hole."""

    def each(self, read: Callable[[int], Value]) -> list[Value]:
        return [None if at < 0 else read(at) for at in self.ats]


def find_parting(
    session: Session,
    ops: GroupOps,
    group: int,
    rank: int,
    other: int,
    *,
    skipped: int,
    before: int | None = None,
) -> FirstDifference | None:
    """Compare `rank` with `other`, which made `skipped` calls more; None: there is nothing to compare.

    `before`: only calls with smaller numbers count.
    """
    mine, theirs = ops.by_rank.get(rank), ops.by_rank.get(other)
    if mine is None or theirs is None or skipped < 1:
        return None
    last = min(mine.last_seq, theirs.last_seq)
    first = max(mine.first_seq, theirs.first_seq, last - _MAX_COMPARED + 1)
    if before is not None:
        last = min(last, before - 1)
    if first > last:
        return None

    def cut(each: RankOps) -> Sequence[int]:
        end = None if before is None else last + 1 - each.first_seq
        return each.indexes[first - each.first_seq : end]

    calls = _Calls(session.ranks[rank], first, cut(mine))
    others = _Calls(session.ranks[other], first, cut(theirs))
    for sign, at, skip, own, foreign in _signs(session, group, calls, others, skipped):
        own_at, foreign_at = calls.ats[at], others.ats[at]
        return FirstDifference(
            rank=rank,
            other=other,
            first=first,
            last=last,
            seq=first + at,
            sign=sign,
            skipped=skip,
            mine=own,
            theirs=foreign,
            is_sure=sign is not CallSign.TIME,
            op=OpRef(rank, own_at) if own_at >= 0 else None,
            other_op=OpRef(other, foreign_at) if foreign_at >= 0 else None,
        )
    return FirstDifference(
        rank=rank,
        other=other,
        first=first,
        last=last,
        is_open=_is_like(session, ops, rank, other),
        stopped=_what_shows_the_end(calls, others, skipped),
    )


def _is_like(session: Session, ops: GroupOps, rank: int, other: int) -> bool:
    """Whether the last calls of two ranks have one kind, one form and one line."""
    facts = []
    for each in (rank, other):
        mine, columns = ops.by_rank[each], session.ranks[each].ops
        at = mine.index(mine.last_seq)
        if at is None:
            return False
        line = session.stacks[columns.stack[at]][:1]
        facts.append((columns.kind[at], columns.form[at], line))
    return facts[0] == facts[1]


def _what_shows_the_end(mine: _Calls, theirs: _Calls, skipped: int) -> Value:
    """The mark by which the last call of the one is that of the other, and none that comes later.

    Had it skipped a call before, its last call would have the mark that the other has so many calls later.
    """
    last = len(mine.ats) - 1
    if last < 0 or last + skipped >= len(theirs.ats):
        return None
    for name in _common_marks(mine.log, theirs.log):
        if _counts_steps(mine.log, name) or _counts_steps(theirs.log, name):
            continue
        own, foreign = _last_marks(mine, name), _last_marks(theirs, name)
        is_like = own[last] is not None and own[last] == foreign[last]
        later = foreign[last + 1 : last + skipped + 1]
        if is_like and all(_differ(own[last], value) for value in later):
            return name, own[last]
    return None


_Found = tuple[CallSign, int, int, Value, Value]


def _signs(
    session: Session, group: int, mine: _Calls, theirs: _Calls, skipped: int
) -> Iterator[_Found]:
    """All signs, the surest first: which call, how many were skipped, what either has there."""

    def line(log: RankLog) -> Callable[[int], Value]:
        return lambda at: session.stacks[log.ops.stack[at]][:1] or None

    def call(log: RankLog) -> Callable[[int], Value]:
        return lambda at: (log.ops.kind[at], log.ops.form[at])

    def caller(log: RankLog) -> Callable[[int], Value]:
        return lambda at: log.ops.stack[at] or None

    for sign, read in ((CallSign.LINE, line), (CallSign.CALL, call), (CallSign.CALLER, caller)):
        own, foreign = mine.each(read(mine.log)), theirs.each(read(theirs.log))
        at, skip = _shift(own, foreign, skipped)
        if at is not None:
            yield sign, at, skip, own[at], foreign[at]
    for name in _common_marks(mine.log, theirs.log):
        own, foreign = _last_marks(mine, name), _last_marks(theirs, name)
        at, skip = _shift(own, foreign, skipped, is_shift_needed=True)
        if at is not None:
            yield CallSign.MARK, at, skip, (name, own[at]), (name, foreign[at])
    for index in _common_groups(mine.log, theirs.log, group):
        own, foreign = _far_on(mine, index), _far_on(theirs, index)
        at, skip = _shift(own, foreign, skipped, is_shift_needed=True)
        if at is not None:
            label = session.groups[index].label
            yield CallSign.GROUPS, at, skip, (label, own[at]), (label, foreign[at])
    for sign, times_of in ((CallSign.SPANS, _note_times), (CallSign.MESSAGES, _message_times)):
        counts = _counts(mine, times_of(mine.log)), _counts(theirs, times_of(theirs.log))
        at = _once_more(*counts, skipped)
        if at is not None:
            yield sign, at, skipped, counts[0][at], counts[1][at]
    at = _long_gap(_gaps(mine), _gaps(theirs), skipped)
    if at is not None:
        yield CallSign.TIME, at, skipped, None, None


# ------------------------------------------------------------------------------------- compared


def _shift(
    mine: Sequence[Value], theirs: Sequence[Value], skipped: int, *, is_shift_needed: bool = False
) -> tuple[int | None, int]:
    """From which call on `mine` is what the other has later on: (index, how many later); (None, 0).

    Without such a shift: from where on they differ in each call, if they were alike before.
    """
    count = min(len(mine), len(theirs))
    first = next((i for i in range(count) if _differ(mine[i], theirs[i])), None)
    if first is None:
        return None, 0
    # A dump may say any number: beyond what the other has called nothing can be compared.
    most = len(theirs) - first
    for skip in (skipped, *range(1, min(skipped, most, _MAX_SHIFTS))):
        if _is_shifted(mine, theirs, first, skip):
            return first, skip
    rest = range(first, count)
    if is_shift_needed or not first or not all(_differ(mine[i], theirs[i]) for i in rest):
        return None, 0
    return first, 0


def _is_shifted(mine: Sequence[Value], theirs: Sequence[Value], first: int, skip: int) -> bool:
    """Whether all that is known from there on is what the other has so many calls later."""
    is_known = False
    for at in range(first, min(len(mine), len(theirs) - skip)):
        own, foreign = mine[at], theirs[at + skip]
        if own is None or foreign is None:
            continue
        if own != foreign:
            return False
        is_known = True
    return is_known


def _differ(own: Value, foreign: Value) -> bool:
    return own is not None and foreign is not None and own != foreign


def _once_more(
    mine: Sequence[int | None], theirs: Sequence[int | None], skipped: int
) -> int | None:
    """The one gap in which there is (skipped + 1) times what there is in each other gap of the rank."""
    usual = Counter(one for one in mine if one is not None).most_common(1)
    if not usual or not usual[0][0] or usual[0][1] < 2:
        return None
    much = usual[0][0] * (skipped + 1)
    odd = [i for i, one in enumerate(mine) if one is not None and one != usual[0][0]]
    if len(odd) != 1 or mine[odd[0]] != much or odd[0] >= len(theirs):
        return None
    foreign = [one for i, one in enumerate(theirs) if one is not None and i < len(mine)]
    return odd[0] if len(set(foreign)) == 1 else None


def _long_gap(mine: Sequence[int | None], theirs: Sequence[int | None], skipped: int) -> int | None:
    """The one gap before a call that took the rank much longer than its others, and the other not."""
    known = [one for one in mine if one is not None]
    if len(known) < _FEWEST_GAPS:
        return None
    usual = median(known)
    if usual < _LEAST_GAP_NS:
        return None
    long = [i for i, one in enumerate(mine) if one is not None and one > _USUAL * usual]
    if len(long) != 1 or long[0] >= len(theirs):
        return None
    own, foreign = mine[long[0]], theirs[long[0]]
    others = [one for one in theirs if one is not None]
    if own is None or foreign is None or not _LONG * usual <= own <= (skipped + 1.5) * usual:
        return None
    return long[0] if foreign <= _USUAL * median(others) else None


# --------------------------------------------------------------------------------- what there is


def _common_marks(mine: RankLog, theirs: RankLog) -> list[str]:
    """Names of marks with values on both."""
    names = [
        {note.name for note in log.notes if isinstance(note, MarkEntry) and note.value is not None}
        for log in (mine, theirs)
    ]
    return sorted(name for name in names[0] & names[1] if name)


def _counts_steps(log: RankLog, name: str) -> bool:
    """Whether the marks may be those of DDP or an optimizer, which count the steps that a rank has made.

    A rank that skips a batch makes no step there, so its count stays with its calls.
    """
    if name != STEP:
        return False
    values = [n.value for n in log.notes if isinstance(n, MarkEntry) and n.name == name]
    return values == [float(number) for number in range(1, len(values) + 1)]


def _last_marks(calls: _Calls, name: str) -> list[Value]:
    """The value of the mark that came last before each call."""
    marks = [n for n in calls.log.notes if isinstance(n, MarkEntry) and n.name == name]
    times = [mark.issued_ns for mark in marks]
    issued = calls.log.ops.issued_ns

    def read(at: int) -> Value:
        before = bisect_right(times, issued[at])
        return marks[before - 1].value if before else None

    return calls.each(read)


def _common_groups(mine: RankLog, theirs: RankLog, group: int) -> list[int]:
    return sorted((mine.progress.keys() & theirs.progress.keys()) - {group})


def _far_on(calls: _Calls, group: int) -> list[Value]:
    """The number of the collective on another group that was called last before each call."""
    ops = calls.log.ops
    found = [
        at
        for at, (index, flags) in enumerate(zip(ops.group, ops.flags, strict=True))
        if index == group and not flags & NO_COLLECTIVE and index != NONE
    ]

    def read(at: int) -> Value:
        before = bisect_left(found, at)
        if before:
            return ops.seq[found[before - 1]]
        return 0 if found and ops.seq[found[0]] == 1 else None

    return calls.each(read)


def _note_times(log: RankLog) -> list[int]:
    return [note.issued_ns for note in log.notes if isinstance(note, (MarkEntry, SpanBegin))]


def _message_times(log: RankLog) -> list[int]:
    flags, issued = log.ops.flags, log.ops.issued_ns
    return [issued[at] for at in range(len(log.ops)) if flags[at] & Flag.MESSAGE]


def _counts(calls: _Calls, times: Sequence[int]) -> list[int | None]:
    """How many of `times` there are between the call before and each call; the first is not known."""
    issued = calls.log.ops.issued_ns
    found: list[int | None] = []
    before: int | None = None
    for at in calls.ats:
        now = None if at < 0 else bisect_right(times, issued[at])
        found.append(None if now is None or before is None else now - before)
        before = now
    return found


def _gaps(calls: _Calls) -> list[int | None]:
    """How long the rank did something else before each call."""
    ops = calls.log.ops
    found: list[int | None] = []
    ended = NEVER
    for at in calls.ats:
        is_known = at >= 0 and ended != NEVER
        found.append(max(ops.issued_ns[at] - ended, 0) if is_known else None)
        ended = ops.ended_ns[at] if at >= 0 else NEVER
    return found
