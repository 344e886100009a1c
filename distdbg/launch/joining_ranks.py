"""Ranks that wait in init_process_group when a signal ends the job: no record says so yet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from distdbg.diagnose.traits import Trait
from distdbg.launch.diagnosis import MISSING_RANK, Diagnosis
from distdbg.launch.last_seen import read_last_seen
from distdbg.record import thresholds
from distdbg.record.ends import read_ends
from distdbg.record.join_calls import JoinCall, note_ended, read_join_calls
from distdbg.record.join_waits import JoinWait, find_join_wait

#: From this on the wait is reported as a hang.
_HANG_NS: Final = thresholds.limit_ns(None)
#: A shorter one is that of any start.
_WAIT_NS: Final = 1_000_000_000
#: Ctrl-C reaches the ranks first.
_ENDED_NS: Final = 2_000_000_000


def join_words(folder: Path, pids: Mapping[int, int]) -> tuple[str, str]:
    """What the ranks hang in, and what they wait for where that is not for long; '' for each.

    Asked when a signal ends the job, which is noted with the calls: some processes take a while to go.
    """
    now_ns = time.monotonic_ns()
    known = read_join_calls(folder).values()
    calls = {call.rank: call for call in sorted(known, key=lambda call: call.since_ns)}
    told = say_join_wait(
        {rank: call for rank, call in calls.items() if rank in pids and call.is_waiting},
        {end.rank: end.how for end in read_ends(folder) if pids.get(end.rank) == end.pid},
        dict.fromkeys(pids, "") | {r: one.text for r, one in read_last_seen(folder, pids).items()},
        now_ns,
    )
    note_ended(folder, now_ns)
    return told


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
