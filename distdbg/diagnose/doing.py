"""Tells what a rank that others wait for is doing: where, since when, on CPU or asleep, how unusual. Pure.

    doing_of(session, 2).text          'asleep in load() at slp.py:7'
    doing_of(session, 2).age_ns        how long it has reached no op
    doing_of(session, 2).level         the severity by the table of `record.thresholds`

The source is what an agent has seen. If no agent looked, `text` is '', and the last op has to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Activity, RankLog, Session
from distdbg.diagnose.traits import Trait
from distdbg.diagnose.wording import say_s, short_site
from distdbg.record.observations import (
    DEAD_CHILD,
    FOR_WHOM,
    IN_LOCK,
    OTHER_THREAD,
    WAITING_FOR_LOCK,
    waits_for_lock,
)
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import Level, level_of, limit_ns

#: Earlier ops are not looked at for the longest gap.
_MAX_OPS: Final = 20_000
_SECOND_NS: Final = 1_000_000_000
#: An agent looks closely a second after a rank's last op, and takes its time.
_SEEN_LATE_NS: Final = 4 * 10**9
_WORDS: Final = {
    RankState.STOPPED: "stopped",
    RankState.TRACED: "stopped in a debugger",
    RankState.HOLDS_GIL: "holding the GIL",
    RankState.BLOCKED_IO: "blocked in I/O",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankActivity:
    """One rank, now or at the moment of the session."""

    rank: int
    state: RankState | None
    """None: nobody saw it."""
    text: str = ""
    site: str = ""
    """'slp.py:7 (load)'."""
    why: str = ""
    since_ns: int | None = None
    """Since when it does that, on the session's clock: its last op, if it has done nothing else since."""
    age_ns: int = 0
    longest_gap_ns: int = 0
    """The longest earlier time between two ops of the rank."""
    gap_bound_ns: int = 0
    """What is shown of `longest_gap_ns`; 0: nothing."""

    @property
    def level(self) -> Level:
        return level_of(self.state, self.age_ns, self.longest_gap_ns)

    @property
    def limit_ns(self) -> int:
        """From which age on it is more than a note."""
        return limit_ns(self.state, self.longest_gap_ns)

    @property
    def compared(self) -> str:
        """'; no earlier gap over 1.0 s'; '' where there is none."""
        return f"; no earlier gap over {say_s(self.gap_bound_ns)}" if self.gap_bound_ns else ""

    @property
    def traits(self) -> frozenset[Trait]:
        """The traits of a finding about the rank."""
        if self.state is RankState.ASLEEP and not self.why.startswith(FOR_WHOM):
            is_in_lock = self.why.startswith(IN_LOCK)
            return frozenset((Trait.ASLEEP, *((Trait.IN_LOCK,) if is_in_lock else ())))
        is_busy = self.state is RankState.BUSY and bool(self.site)
        return frozenset((Trait.BUSY,) if is_busy else ())

    @property
    def news(self) -> str:
        """What its reason ends with: another thread, or another process, where it names one."""
        parts = (self.why.partition(word)[2] for word in (OTHER_THREAD, DEAD_CHILD))
        return next(filter(None, parts), self.why)

    @property
    def on_cpu(self) -> str:
        return " on CPU" if self.state is RankState.BUSY or self.why.startswith("on CPU") else ""

    @property
    def lasts(self) -> str:
        """' for 9.0 s on CPU'; '' where that is not known."""
        return f" for {say_s(self.age_ns)}{self.on_cpu}" if self.age_ns else ""


def doing_of(session: Session, rank: int) -> RankActivity:
    """What a rank does instead of calling the op that others are in."""
    log = session.ranks.get(rank)
    if log is None:
        return RankActivity(rank=rank, state=None)
    seen = log.activity
    if seen is not None and seen.state.is_over:
        seen = None
    since_ns = _since_ns(session, log, seen)
    longest = longest_gap_ns(log)
    site = _site_of(seen)
    return RankActivity(
        rank=rank,
        state=seen.state if seen is not None else None,
        text="" if seen is None else _say(seen, site),
        site=site,
        why=seen.why if seen is not None else "",
        since_ns=since_ns,
        age_ns=0
        if since_ns is None or session.now_ns == NEVER
        else max(session.now_ns - since_ns, 0),
        longest_gap_ns=longest,
        gap_bound_ns=gap_bound_ns(log, longest),
    )


def traits_of_doing(session: Session, ranks: Iterable[int]) -> frozenset[Trait]:
    """Return the traits of a finding about these ranks, by what they were seen doing."""
    return frozenset(trait for rank in ranks for trait in doing_of(session, rank).traits)


def doing_then(session: Session, rank: int, at_ns: int) -> str:
    """What it was seen doing at a time of the session's clock: 'asleep in load() at slp.py:7'; ''."""
    log = session.ranks.get(rank)
    if log is None:
        return ""
    seen = log.activity if at_ns == NEVER else log.seen_at(at_ns - log.offset_ns)
    return "" if seen is None or seen.state.is_over else _say(seen, _site_of(seen))


def longest_gap_ns(log: RankLog) -> int:
    """The longest time between two ops that the rank came out of."""
    ops, longest = log.ops, log.longest_gap_ns
    if (
        log.activity is not None and len(ops) > 1
    ):  # a record and an agent's verdict are to show one number
        longest = max(longest, log.activity.longest_gap_ns)
    start = max(len(ops) - _MAX_OPS, 0)
    last = NEVER
    for issued, ended in zip(ops.issued_ns[start:], ops.ended_ns[start:], strict=True):
        if last != NEVER and issued - last > longest:
            longest = issued - last
        last = max(last, issued, ended)
    return longest


def gap_bound_ns(log: RankLog, gap_ns: int) -> int:
    """A bound of the longest gap, in whole seconds; 0 for a rank that has not called two ops.

    An agent looks a few times a second and a record has each op: both know the same of whole seconds.
    """
    called = max((far.issued_seq for far in log.progress.values()), default=0)
    if max(called, len(log.ops)) < 2 and not gap_ns:
        return 0
    return max(-(-gap_ns // _SECOND_NS), 1) * _SECOND_NS


def place(site: str) -> str:
    """'in load() at slp.py:7'; 'at slp.py:11' outside any function."""
    where, _, function = site.partition(" (")
    function = function.removesuffix(")")
    if not where:
        return ""
    return (
        f"in {function}() at {where}"
        if function and not function.startswith("<")
        else f"at {where}"
    )


def _say(seen: Activity, site: str) -> str:
    word = _WORDS.get(seen.state, str(seen.state))
    if waits_for_lock(seen.state, seen.why):
        word = WAITING_FOR_LOCK
    elif seen.why.startswith(FOR_WHOM):  # who that is comes behind the place
        return ", ".join(filter(None, (place(site), seen.why.partition(";")[0])))
    return f"{word} {place(site)}".rstrip()


def _site_of(seen: Activity | None) -> str:
    if seen is None:
        return ""
    return short_site(seen.site or (str(seen.stack[0]) if seen.stack else ""))


def _since_ns(session: Session, log: RankLog, seen: Activity | None) -> int | None:
    """When it last began or ended an op, if it has done this since then; else since when it was seen."""
    # In a live session the ops that have ended are not there, but when the rank last made progress.
    last_ns = log.heartbeat_ns or NEVER if session.is_live and session.cut is None else NEVER
    if len(log.ops):
        last_ns = max(last_ns, log.ops.issued_ns[-1], *log.ops.ended_ns[-8:])
    if seen is not None:
        first_ns = _first_seen_ns(log, seen)
        if last_ns == NEVER or first_ns - last_ns > _SEEN_LATE_NS:
            last_ns = first_ns
    return None if last_ns == NEVER else session.time_ns(log.rank, last_ns)


def _first_seen_ns(log: RankLog, seen: Activity) -> int:
    """Since when it is in that function: a loop looks busy, or as if it held the GIL, from look to look."""
    first_ns, function = seen.since_ns, _function_of(seen)
    for one in reversed(log.activities):
        if one.since_ns > seen.since_ns:
            continue
        if not function or _function_of(one) != function:
            break
        first_ns = min(first_ns, one.since_ns)
    return first_ns


def _function_of(seen: Activity) -> str:
    return _site_of(seen).partition(" (")[2]
