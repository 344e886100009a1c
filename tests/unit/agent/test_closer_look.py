"""A state does not flip with each look."""

from distdbg.agent.closer_look import may_be_short_calls, needs_confirmation
from distdbg.follow.stuck import StuckJudgement
from distdbg.record.rank_state import RankState


def test_a_stuck_rank_is_another_state_only_when_it_was_found_so_twice() -> None:
    holds_gil, blocked = RankState.HOLDS_GIL, RankState.BLOCKED_IO
    assert needs_confirmation(holds_gil, blocked, None)
    assert needs_confirmation(holds_gil, RankState.RUNNING, blocked)
    assert not needs_confirmation(holds_gil, blocked, blocked)


def test_a_first_judgement_and_the_same_one_again_count_at_once() -> None:
    assert not needs_confirmation(RankState.RUNNING, RankState.HOLDS_GIL, None)
    assert not needs_confirmation(RankState.HOLDS_GIL, RankState.HOLDS_GIL, RankState.RUNNING)


def test_a_loop_of_short_calls_holds_the_gil_only_when_each_of_many_looks_finds_it_so() -> None:
    busy = StuckJudgement(RankState.HOLDS_GIL, "one call", is_busy=True)
    assert may_be_short_calls(RankState.RUNNING, busy, 1)
    assert may_be_short_calls(RankState.BUSY, busy, 5)
    assert not may_be_short_calls(RankState.RUNNING, busy, 6)
    assert not may_be_short_calls(RankState.HOLDS_GIL, busy, 1)  # it is known already
    # Who sleeps in C is not at work in a loop; nor is who was found at something else.
    assert not may_be_short_calls(
        RankState.RUNNING, StuckJudgement(RankState.HOLDS_GIL, "one call"), 1
    )
    assert not may_be_short_calls(
        RankState.RUNNING, StuckJudgement(RankState.BUSY, "", is_busy=True), 1
    )
