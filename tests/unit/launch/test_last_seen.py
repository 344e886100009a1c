"""Where ranks were last, and what they may use: for the report."""

from __future__ import annotations

from dataclasses import replace

from distdbg.launch.last_seen import LastSeen, last_seen, seen_now
from distdbg.launch.memory import name_limit
from distdbg.record.observations import Observation
from distdbg.record.rank_state import RankState


def sighting(state: str, pid: int = 9) -> Observation:
    place = "slp.py:7 (load)"
    return Observation(rank=2, pid=pid, host="n1", state=RankState(state), since_ns=100, site=place)


def test_the_last_sighting_of_the_same_process_counts() -> None:
    seen = [sighting("stopped"), sighting("running"), sighting("stopped", pid=8)]
    assert last_seen(seen, {2: 9}) == {2: LastSeen("in load() at slp.py:7", RankState.RUNNING)}
    assert last_seen(seen, {1: 9}) == {}


def test_what_a_rank_did_after_others_gave_up_waiting_for_it_does_not_count() -> None:
    asleep = sighting("asleep")
    came = replace(sighting("running"), since_ns=300, site="slp.py:12 (<module>)")
    slept = LastSeen("asleep in load() at slp.py:7", RankState.ASLEEP)
    ran = LastSeen("at slp.py:12", RankState.RUNNING)
    assert last_seen([asleep, came], {2: 9}, until_ns=200) == {2: slept}
    assert last_seen([asleep, came], {2: 9}) == {2: ran}
    assert last_seen([came], {2: 9}, until_ns=200) == {2: ran}  # nothing else is known


def test_a_thread_that_may_hold_the_lock_is_named_beside_it() -> None:
    why = "blocked on a lock; its thread 'saver' is at b.py:3 (save)"
    found = last_seen([replace(sighting("asleep"), why=why)], {2: 9})
    assert found[2].text == (
        "waiting for a lock in load() at slp.py:7; its thread 'saver' is at b.py:3 (save)"
    )


def test_where_a_rank_is_now_was_seen_since_it_moved_last() -> None:
    seen = [sighting("asleep")]
    assert seen_now(seen, 2, 9, 100) is seen[0]
    assert seen_now(seen, 2, 9, 101) is None
    assert seen_now(seen, 2, 8, 100) is None
    later = [*seen, sighting("running")]
    assert seen_now(later, 2, 9, 100) is later[1]


def test_the_smallest_limit_of_memory_is_named() -> None:
    assert name_limit([(3 << 30, "cgroup"), (2 << 30, "ulimit -v")]) == "2.0 GiB (ulimit -v)"
    assert name_limit([(192 << 20, "cgroup")]) == "192.0 MiB (cgroup)"
    assert name_limit([]) == ""
