"""Compares two runs of a program: times, calls, their order. Pure.

Calls are the same when group, kind, size and call site are: `train.py:88 (step)` without its folders, so
that two checkouts can be compared. A time differs when the median does, by more than the threshold and by
more than what clocks and schedulers do on their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.op_fields import SessionView
from distdbg.diagnose.ops import NONE, OTHER_KIND, OpRef
from distdbg.diagnose.query import select
from distdbg.diagnose.session import RankLog
from distdbg.diagnose.summary import OpSums, sum_up
from distdbg.diagnose.wording import say_site

#: A median that moved by less than this is the same.
LEAST_NS: Final = 20_000
#: Fewer ops have no median worth a word.
LEAST_COUNT: Final = 3

_KEYS: Final = ("group", "kind", "size", "site")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCall:
    """What ops have in common to be compared."""

    group: str
    kind: str
    nbytes: int
    site: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How often one run made a call, and what it took."""

    count: int
    p50_ns: int | None
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One call, before and after; None: that run does not have it."""

    call: ComparedCall
    before: Times | None
    after: Times | None

    @property
    def factor(self) -> float | None:
        """The median after over that before."""
        if self.before is None or self.after is None:
            return None
        first, last = self.before.p50_ns, self.after.p50_ns
        return None if first is None or last is None else max(last, 1) / max(first, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderChange:
    """The first place where ranks call something else than before."""

    ranks: tuple[int, ...]
    place: int
    """Of the calls of the rank, from 1, as far as both runs have them."""
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """All that differs; what took most time first."""

    slower: tuple[Change, ...]
    faster: tuple[Change, ...]
    counts: tuple[Change, ...]
    """The same call, more or less often; times as before."""
    new: tuple[Change, ...]
    gone: tuple[Change, ...]
    order: tuple[OrderChange, ...]
    notes: tuple[str, ...] = ()
    """Why the comparison is weaker than it could be."""

    def __bool__(self) -> bool:
        parts = (self.slower, self.faster, self.counts, self.new, self.gone, self.order)
        return any(parts)


def compare(before: SessionView, after: SessionView, *, threshold: float = 0.2) -> Difference:
    """`threshold`: by which share of itself a median has to move."""
    first, last = _by_call(before), _by_call(after)
    is_whole = not (_has_lost(before) or _has_lost(after))
    changes = [
        Change(call=call, before=first.get(call), after=last.get(call))
        for call in dict.fromkeys((*first, *last))
    ]
    changes.sort(key=lambda change: -_weight(change))
    both = [change for change in changes if change.before and change.after]
    moved = {change.call for change in both if _has_moved(change, threshold)}
    return Difference(
        slower=tuple(c for c in both if c.call in moved and (c.factor or 0) > 1),
        faster=tuple(c for c in both if c.call in moved and (c.factor or 0) <= 1),
        counts=tuple(
            c
            for c in both
            if is_whole and c.call not in moved and _count(c.before) != _count(c.after)
        ),
        new=tuple(c for c in changes if c.before is None),
        gone=tuple(c for c in changes if c.after is None),
        order=tuple(_orders(before, after)),
        notes=tuple(_notes(before, after, is_whole=is_whole)),
    )


# ------------------------------------------------------------------------------------------- times


def _by_call(view: SessionView) -> dict[ComparedCall, Times]:
    found: dict[ComparedCall, OpSums] = {}
    for sums in sum_up(view, select(view, lambda view, op: True), _KEYS):
        group, kind, nbytes, site = sums.key
        call = ComparedCall(
            group=str(group or ""), kind=str(kind), nbytes=int(nbytes or 0), site=_short(site)
        )
        if call in found:
            found[call].add(sums)
        else:
            found[call] = sums
    return {
        call: Times(count=s.count, p50_ns=s.percentile_ns(0.5), total_ns=s.total_ns)
        for call, s in found.items()
    }


def _short(site: object) -> str:
    place, space, function = str(site or "").partition(" (")
    return place.rpartition("/")[2] + space + function


def _has_moved(change: Change, threshold: float) -> bool:
    first, last = change.before, change.after
    if first is None or last is None or first.p50_ns is None or last.p50_ns is None:
        return False
    if min(first.count, last.count) < LEAST_COUNT:
        return False
    moved_ns = abs(last.p50_ns - first.p50_ns)
    return moved_ns > LEAST_NS and moved_ns > threshold * first.p50_ns


def _weight(change: Change) -> int:
    return max(times.total_ns for times in (change.before, change.after) if times is not None)


def _count(times: Times | None) -> int:
    return 0 if times is None else times.count


# ------------------------------------------------------------------------------------------- order


def _orders(before: SessionView, after: SessionView) -> Iterator[OrderChange]:
    places: dict[tuple[int, str, str], list[int]] = {}
    for rank, log in before.session.ranks.items():
        other = after.session.ranks.get(rank)
        if other is None:
            continue
        found = _first_difference(before, log, after, other)
        if found is not None:
            places.setdefault(found, []).append(rank)
    for (place, first, last), ranks in sorted(places.items(), key=lambda item: item[1]):
        yield OrderChange(ranks=tuple(ranks), place=place, before=first, after=last)


def _first_difference(
    before: SessionView, log: RankLog, after: SessionView, other: RankLog
) -> tuple[int, str, str] | None:
    # Where a ring has come round, both begin with the first number that is in both.
    first = max(_first_number(log), _first_number(other))
    mine = [at for at, number in enumerate(log.ops.number) if number >= first]
    theirs = [at for at, number in enumerate(other.ops.number) if number >= first]
    if _are_alike(before, log, mine, after, other, theirs):
        return None
    for place, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if _what(before, log, a) != _what(after, other, b):
            return place + 1, _say(before, OpRef(log.rank, a)), _say(after, OpRef(other.rank, b))
    return None


def _are_alike(
    before: SessionView,
    log: RankLog,
    mine: Sequence[int],
    after: SessionView,
    other: RankLog,
    theirs: Sequence[int],
) -> bool:
    """Whether all calls that both have are the same, by their columns; False: look at each."""
    if [g.label for g in before.session.groups] != [g.label for g in after.session.groups]:
        return False
    count = min(len(mine), len(theirs))
    if OTHER_KIND in log.ops.kind:
        return False
    pairs = (
        (log.ops.group, other.ops.group),
        (log.ops.kind, other.ops.kind),
        (log.ops.peer, other.ops.peer),
    )
    # What is left out is at the beginning.
    a, b = len(log.ops) - len(mine), len(other.ops) - len(theirs)
    return all(one[a : a + count] == two[b : b + count] for one, two in pairs)


def _first_number(log: RankLog) -> int:
    """The first from which on nothing was overwritten."""
    numbers = log.ops.number
    if not log.lost.get("ops"):
        return numbers[0] if numbers else 1
    # Parked ops come before the ring, far apart; the ring begins behind the last gap.
    first = numbers[-1] if numbers else 1
    for number in reversed(numbers):
        if first - number > 1:
            break
        first = number
    return first


def _what(view: SessionView, log: RankLog, at: int) -> tuple[str, str, int]:
    group = log.ops.group[at]
    label = "" if group == NONE else view.session.groups[group].label
    return label, view.session.kind_of(OpRef(log.rank, at)), log.ops.peer[at]


def _say(view: SessionView, op: OpRef) -> str:
    site = say_site(view.session.site_of(op))
    return view.session.name_of(op) + (f" at {site}" if site else "")


# ------------------------------------------------------------------------------------------- notes


def _has_lost(view: SessionView) -> bool:
    return any(log.lost.get("ops") or log.lost.get("gaps") for log in view.session.ranks.values())


def _notes(before: SessionView, after: SessionView, *, is_whole: bool) -> Iterator[str]:
    if not is_whole:
        yield "some records have lost their oldest ops, so counts are not compared"
    sizes = (before.session.world_size, after.session.world_size)
    if sizes[0] != sizes[1]:
        yield f"the runs have {sizes[0]} and {sizes[1]} ranks"
    yield from _only(before, after, "before")
    yield from _only(after, before, "after")


def _only(view: SessionView, other: SessionView, when: str) -> Iterable[str]:
    lacking: Sequence[int] = sorted(set(other.session.ranks) - set(view.session.ranks))
    if lacking and view.session.world_size == other.session.world_size:
        return [f"{len(lacking)} ranks of the other run have no record {when}"]
    return []
