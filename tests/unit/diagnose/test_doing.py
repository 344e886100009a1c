"""What a rank does instead of calling the op that others are in."""

from __future__ import annotations

import pytest

from distdbg.diagnose.doing import doing_of, gap_bound_ns
from distdbg.diagnose.session import Activity, GroupProgress
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder


@pytest.mark.parametrize(
    ("gap_ns", "bound_s"), [(93_500, 1), (280_000_000, 1), (1_000_000_000, 1), (1_000_000_001, 2)]
)
def test_a_gap_is_shown_in_whole_seconds_that_it_was_not_longer_than(
    gap_ns: int, bound_s: int
) -> None:
    log = SessionBuilder(1).session.ranks[0]
    assert gap_bound_ns(log, gap_ns) == bound_s * 10**9


def test_an_agent_that_saw_no_gap_and_a_record_that_has_each_op_show_the_same() -> None:
    live = SessionBuilder(2, is_live=True)
    live.session.ranks[0].progress[0] = GroupProgress(issued_seq=4, ended_seq=4)
    record = SessionBuilder(2)
    for at in range(4):
        record.op(0, "all_reduce", at_s=1 + at / 100, ended_s=1 + at / 100)
    shown = {doing_of(build.session, 0).gap_bound_ns for build in (live, record)}
    assert shown == {10**9}


def test_a_gap_that_an_agent_measured_is_the_one_that_a_record_shows() -> None:
    build = SessionBuilder(1)
    for at in range(2):
        build.op(0, "all_reduce", at_s=1 + at / 2, ended_s=1.1 + at / 2)
    seen = Activity(state=RankState.HOLDS_GIL, since_ns=10**9, longest_gap_ns=1_278_000_000)
    build.session.ranks[0].activity = seen
    assert doing_of(build.session, 0).gap_bound_ns == 2 * 10**9


def test_of_a_rank_that_has_called_one_op_no_gap_is_known() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce", at_s=1, ended_s=1.1)
    assert doing_of(build.session, 0).gap_bound_ns == 0
