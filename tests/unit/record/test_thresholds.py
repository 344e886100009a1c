"""The table of ages: from when on a state is worth more than a note."""

from __future__ import annotations

import pytest

from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import ELSE, FACTOR, TABLE, level_of, limit_ns

S = 10**9


@pytest.mark.parametrize("state", [RankState.STOPPED, RankState.TRACED])
def test_what_no_rank_leaves_by_itself_is_an_error_at_once(state: RankState) -> None:
    assert level_of(state, 0) == level_of(state, 0, longest_gap_ns=900 * S) == "error"


@pytest.mark.parametrize(
    ("state", "limit_s"),
    [
        (RankState.HOLDS_GIL, 10),
        (RankState.BUSY, 10),
        (RankState.BLOCKED_IO, 10),
        (RankState.ASLEEP, 30),
        (RankState.RUNNING, 30),
        (None, 30),
    ],
)
def test_what_may_go_on_is_a_note_then_a_warning_and_never_an_error(
    state: RankState | None, limit_s: int
) -> None:
    assert level_of(state, limit_s * S - 1) == "note"
    assert level_of(state, limit_s * S) == "warning"
    assert level_of(state, 10**6 * S) == "warning"


def test_what_the_run_has_survived_before_is_no_reason_to_worry() -> None:
    assert limit_ns(RankState.BUSY, 3 * S) == 10 * S
    assert limit_ns(RankState.BUSY, 20 * S) == FACTOR * 20 * S
    assert level_of(RankState.BUSY, 59 * S, 20 * S) == "note"
    assert level_of(RankState.BUSY, 60 * S, 20 * S) == "warning"


def test_all_states_in_which_a_rank_may_stay_are_in_the_table() -> None:
    assert set(TABLE) == {state for state in RankState if state.is_stuck}
    assert ELSE.error_ns is None
