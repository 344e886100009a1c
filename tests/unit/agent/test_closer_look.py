"""A state does not flip with each look."""

from distdbg.agent.closer_look import is_doubtful
from distdbg.record.rank_state import RankState


def test_a_stuck_rank_is_another_state_only_when_it_was_found_so_twice() -> None:
    held, blocked = RankState.HOLDS_GIL, RankState.BLOCKED_IO
    assert is_doubtful(held, blocked, None)
    assert is_doubtful(held, RankState.RUNNING, blocked)
    assert not is_doubtful(held, blocked, blocked)


def test_a_first_judgement_and_the_same_one_again_count_at_once() -> None:
    assert not is_doubtful(RankState.RUNNING, RankState.HOLDS_GIL, None)
    assert not is_doubtful(RankState.HOLDS_GIL, RankState.HOLDS_GIL, RankState.RUNNING)
