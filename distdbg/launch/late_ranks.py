"""What is known of ranks for which others waited: until they gave up, or in init_process_group, of which no
record says anything yet, until a signal ended the job."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from distdbg.diagnose import headline
from distdbg.diagnose.traits import FactKind, Trait
from distdbg.launch.diagnosis import DEAD_RANK, MISSING_RANK, Diagnosis
from distdbg.launch.hints import STOPPED_RANK, THREAD_RAISED
from distdbg.launch.last_seen import LastSeen, read_last_seen
from distdbg.launch.report_details import thread_error
from distdbg.launch.root_cause import LossRole, RootCause
from distdbg.record import thresholds
from distdbg.record.ends import read_ends
from distdbg.record.join_calls import JoinCall, note_ended, read_join_calls
from distdbg.record.join_waits import JoinWait, find_join_wait
from distdbg.record.rank_state import RankState

_OF_SOURCE: Final = frozenset((Trait.SIGNAL_PLACE, Trait.ERROR_PLACE))


#: From this on the wait is reported as a hang.
_HANG_NS: Final = thresholds.limit_ns(None)
#: A shorter one is that of any start.
_WAIT_NS: Final = 1_000_000_000
#: Ctrl-C reaches the ranks first.
_ENDED_NS: Final = 2_000_000_000


def known_of_late(
    diagnosis: Diagnosis | None, seen: Mapping[int, LastSeen], found: RootCause
) -> Diagnosis | None:
    """What the records and the agent show of ranks that are waited for; None: they may only be slow."""
    diagnosis = shown_of_late(diagnosis, found)
    if diagnosis is None:
        return None
    is_busy = _any_in(RankState.BUSY, diagnosis.ranks, seen)
    if is_busy and Trait.ENDLESS_LOOP in diagnosis.traits:
        return diagnosis  # its source has a loop that may not end
    is_slow = is_busy or not any(rank in seen for rank in diagnosis.ranks)
    return None if is_slow else diagnosis


def shown_of_late(diagnosis: Diagnosis | None, found: RootCause) -> Diagnosis | None:
    """What is known of where they are; None: the records are about other ranks."""
    if diagnosis is None or found.role is not LossRole.SUSPECT or not diagnosis.ranks:
        return None
    if headline.of_kind(diagnosis.kind, diagnosis.what) != headline.HUNG:
        return None
    return diagnosis if found.named.issuperset(diagnosis.ranks) else None


def facts_of_late(diagnosis: Diagnosis, reported: str) -> Iterator[str]:
    """'rank 3: one call that does not return (sre_ucs1_match)', where the lines above do not say it.

    Before it messages that may be meant for each other: then nobody waits for the right rank.
    """
    yield from (fact.text for fact in diagnosis.facts if fact.kind == FactKind.UNMATCHED)
    for fact in diagnosis.facts:
        is_about_them = fact.kind == FactKind.REASON and set(fact.all_ranks) <= set(diagnosis.ranks)
        if is_about_them and fact.detail not in reported:
            yield fact.text


def facts_of_interrupted(diagnosis: Diagnosis, reported: str) -> Iterator[str]:
    """What the records show of waits that a signal ended, beyond who waited for whom."""
    if headline.of_kind(diagnosis.kind, diagnosis.what) in (headline.HUNG, headline.STOPPED):
        yield from facts_of_late(diagnosis, reported)
    else:
        yield diagnosis.what


def hint_of_end(diagnosis: Diagnosis | None) -> str:
    """Where a rank sets the timer, or sends the signal, that may have killed it, or what is behind its error.

    By its source; ''.
    """
    if diagnosis is None or diagnosis.kind != DEAD_RANK:
        return ""
    return diagnosis.advice if _OF_SOURCE & diagnosis.traits else ""


def hint_of_late(seen: Mapping[int, LastSeen], found: RootCause) -> str:
    """What to do about a rank that is waited for, by what it was seen doing."""
    if found.role is not LossRole.SUSPECT:
        return ""
    if any(thread_error(found, rank) for rank in found.named):
        return THREAD_RAISED
    if _any_in(RankState.STOPPED, found.named, seen):
        return STOPPED_RANK
    return ""


def _any_in(state: RankState, ranks: Iterable[int], seen: Mapping[int, LastSeen]) -> bool:
    return any(rank in seen and seen[rank].state is state for rank in ranks)


def join_words(folder: Path, pids: Mapping[int, int]) -> tuple[str, str]:
    """What the ranks hang in, and what they wait for where that is not for long; '' for each.

    Asked when a signal ends the job, which is noted with the calls: some processes take a while to go.
    """
    now_ns = time.monotonic_ns()
    known = read_join_calls(folder).values()
    calls = {call.rank: call for call in sorted(known, key=lambda call: call.since_ns)}
    reported = say_join_wait(
        {rank: call for rank, call in calls.items() if rank in pids and call.is_waiting},
        {end.rank: end.how for end in read_ends(folder) if pids.get(end.rank) == end.pid},
        dict.fromkeys(pids, "") | {r: one.text for r, one in read_last_seen(folder, pids).items()},
        now_ns,
    )
    note_ended(folder, now_ns)
    return reported


def is_of_joining(diagnosis: Diagnosis) -> bool:
    """Whether ranks waited in init_process_group until they gave up."""
    return diagnosis.kind == MISSING_RANK and Trait.JOINING in diagnosis.traits


def say_join_wait(
    calls: Mapping[int, JoinCall], ended: Mapping[int, str], doing: Mapping[int, str], now_ns: int
) -> tuple[str, str]:
    """The same of what is known of them at a moment. Pure."""
    ended = {
        rank: how for rank, how in ended.items() if not _was_interrupted(calls.get(rank), now_ns)
    }
    found = find_join_wait(calls, ended, doing, now_ns)
    if found is None or found.waited_ns < _WAIT_NS:
        return "", ""
    if found.waited_ns < _HANG_NS:
        return "", _say(found, "had waited")
    return _say(found, "waited"), ""


def _was_interrupted(call: JoinCall | None, now_ns: int) -> bool:
    """Whether it was in the call until just now."""
    is_it = call is not None and call.is_waiting and call.step == "failed"
    return is_it and call is not None and now_ns - call.step_ns < _ENDED_NS


def _say(found: JoinWait, waited: str) -> str:
    return "".join(found.say(waited))
