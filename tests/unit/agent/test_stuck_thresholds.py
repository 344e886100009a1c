from __future__ import annotations

import os

from distdbg.agent.judging.account import AccountMaker
from distdbg.agent.judging.diagnosis_triggers import find_triggers
from distdbg.agent.judging.stuck_thresholds import patient_state
from distdbg.follow.processes import ProcessStat
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.entries import Pulse
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import FACTOR, limit_ns

WORKS_NS, SLEEPS_NS = limit_ns(RankState.BUSY), limit_ns(RankState.ASLEEP)


def watched(state: RankState, *, is_busy: bool = False) -> WatchedRank:
    return WatchedRank(
        rank=0, host="n01", pid=os.getpid(), state=state, since_ns=5, is_busy=is_busy
    )


def stuck_after(one: WatchedRank) -> int | None:
    """When a verdict may count on it."""
    for at in (0, WORKS_NS, SLEEPS_NS):
        if patient_state(one, 5 + at).is_stuck:
            assert at == 0 or not patient_state(one, 4 + at).is_stuck
            return at
    return None


def test_who_may_be_at_work_is_not_stuck_at_once() -> None:
    assert stuck_after(watched(RankState.STOPPED)) == 0
    assert stuck_after(watched(RankState.TRACED)) == 0
    assert stuck_after(watched(RankState.HOLDS_GIL)) == 0
    assert stuck_after(watched(RankState.HOLDS_GIL, is_busy=True)) == WORKS_NS
    assert stuck_after(watched(RankState.BUSY, is_busy=True)) == WORKS_NS
    assert stuck_after(watched(RankState.BLOCKED_IO)) == WORKS_NS
    assert stuck_after(watched(RankState.ASLEEP)) == SLEEPS_NS
    assert stuck_after(watched(RankState.RUNNING)) is None
    assert patient_state(watched(RankState.DEAD), 5) is RankState.DEAD


def test_a_gap_that_the_run_has_survived_before_is_no_reason_to_worry() -> None:
    one = watched(RankState.ASLEEP)
    one.progress_ns = 7
    one.move(7 + SLEEPS_NS)
    assert one.longest_gap_ns == SLEEPS_NS
    one.since_ns = one.progress_ns
    assert patient_state(one, one.since_ns + FACTOR * SLEEPS_NS - 1) is RankState.RUNNING
    assert patient_state(one, one.since_ns + FACTOR * SLEEPS_NS) is RankState.ASLEEP


def test_a_wait_for_others_and_a_pause_are_no_gaps_of_a_rank() -> None:
    one = watched(RankState.WAITING)
    one.progress_ns = 7
    one.move(7 + SLEEPS_NS)
    one.state, one.rested_ns = RankState.RUNNING, one.progress_ns + 5
    one.move(one.progress_ns + SLEEPS_NS)
    assert one.longest_gap_ns == 0


def test_a_loop_that_looks_like_either_from_look_to_look_is_as_old_as_it_is() -> None:
    one = watched(RankState.BUSY, is_busy=True)
    assert one.change(RankState.HOLDS_GIL, 5 + WORKS_NS // 2)
    assert one.since_ns == 5
    assert one.change(RankState.ASLEEP, 5 + WORKS_NS)
    assert one.since_ns == 5 + WORKS_NS


def test_who_has_to_share_its_core_has_more_time() -> None:
    one = watched(RankState.BUSY, is_busy=True)
    one.cpu_since_s = 7.0
    for cpu_s, state in ((11.0, RankState.RUNNING), (12.5, RankState.BUSY)):
        one.stat = ProcessStat(
            state="R", started=1, cpu_s=cpu_s, rss_nbytes=0, threads=1, wait_status=0
        )
        assert patient_state(one, 5 + WORKS_NS) is state


def test_an_account_says_of_a_rank_that_may_be_at_work_that_it_runs() -> None:
    sleeper = watched(RankState.ASLEEP)
    maker = AccountMaker("n01")
    assert maker.make([sleeper], 6)["ranks"][0]["state"] == "running"
    assert maker.make([sleeper], 5 + SLEEPS_NS)["ranks"][0]["state"] == "asleep"


def test_the_end_of_patience_is_a_reason_to_look_again() -> None:
    sleeper = watched(RankState.ASLEEP)
    assert find_triggers([sleeper], 6) == ()
    assert find_triggers([sleeper], 5 + SLEEPS_NS) != ()


def test_the_record_of_a_rank_that_has_ended_is_a_reason_to_look_again() -> None:
    """Of a short life it is found after the end was told; only then is known that it left."""
    waiting, ended = watched(RankState.WAITING), watched(RankState.ENDED)
    waiting.is_exact = True
    before = find_triggers([waiting, ended], 6)
    ended.pulse = Pulse(**dict.fromkeys(Pulse._fields, 1))
    assert find_triggers([waiting, ended], 6) != before


def test_nobody_is_stuck_while_the_clock_of_the_job_stands() -> None:
    for state in (RankState.STOPPED, RankState.HOLDS_GIL, RankState.ASLEEP):
        one = watched(state)
        one.is_resting, one.rested_ns = True, 5 + 10 * SLEEPS_NS
        assert patient_state(one, one.rested_ns) is RankState.RUNNING
        assert not find_triggers([one], one.rested_ns)
    one = watched(RankState.DEAD)
    one.is_resting = True
    assert patient_state(one, 6) is RankState.DEAD


def test_all_have_their_time_again_when_the_clock_runs_on() -> None:
    one = watched(RankState.ASLEEP)
    one.rested_ns = 5 + 10 * SLEEPS_NS
    assert patient_state(one, one.rested_ns + SLEEPS_NS - 1) is RankState.RUNNING
    assert patient_state(one, one.rested_ns + SLEEPS_NS) is RankState.ASLEEP
    stopped = watched(RankState.STOPPED)
    stopped.rested_ns = one.rested_ns
    assert patient_state(stopped, one.rested_ns + 1) is RankState.STOPPED


def test_a_rank_in_the_debugger_is_no_reason_to_look() -> None:
    assert find_triggers([watched(RankState.DEBUGGED)], 5 + SLEEPS_NS) == ()


def test_a_file_lock_that_a_rank_holds_is_looked_at_at_once() -> None:
    one = watched(RankState.ASLEEP)
    one.why = "waiting for a file lock that pid 7 (rsync) holds"
    assert patient_state(one, 6) is RankState.RUNNING
    one.why = "waiting for a file lock that rank 2 holds"
    assert patient_state(one, 6) is RankState.ASLEEP
