"""Who was late, and who waited for whom."""

from __future__ import annotations

import pytest

from distdbg.render.aggregate import choose_lanes, fold_lanes, lateness, meetings, waits
from tests.support.session_builder import SessionBuilder

SECOND = 10**9


def late_rank_2(count: int = 4) -> SessionBuilder:
    build = SessionBuilder(world_size=count, now_s=20.0)
    for step in range(3):
        for rank in range(count):
            at_s = step + 0.01 * rank + (0.5 if rank == 2 else 0)
            build.op(rank, "all_reduce", at_s=at_s, ended_s=step + 0.9)
    return build


def test_the_last_to_come_is_late_and_costs_the_others_what_they_waited_for_it() -> None:
    found = list(meetings(late_rank_2().session))
    assert len(found) == 3
    late = lateness(found)
    assert [one.was_last for one in late] == [0, 0, 3, 0]
    assert late[2].mean_ns == pytest.approx(0.52 * SECOND)
    assert late[2].worst_ns == pytest.approx(0.52 * SECOND)
    assert late[2].cost_ns == pytest.approx(3 * 0.49 * SECOND)


def test_an_op_that_a_rank_has_lost_is_not_counted() -> None:
    build = late_rank_2()
    build.op(0, "barrier", at_s=5)
    assert len(list(meetings(build.session))) == 3


def test_waits_are_those_for_the_last_and_those_of_now() -> None:
    build = late_rank_2()
    build.op(1, "recv", peer=3, at_s=15)
    build.op(0, "barrier", at_s=18)
    session = build.session
    sums = waits(session, meetings(session), fold_lanes(session)).ns
    assert sums[0, 2] == pytest.approx((3 * 0.52 + 2) * SECOND)
    assert sums[1, 3] == 5 * SECOND
    assert (2, 0) not in sums


def test_a_wait_in_vain_counts_too() -> None:
    build = SessionBuilder(world_size=2, now_s=20.0)
    build.op(0, "barrier", at_s=1, ended_s=7, status=2)
    session = build.session
    assert waits(session, [], fold_lanes(session)).ns == {(0, 1): 6 * SECOND}


def test_too_many_ranks_are_some_lanes_those_to_blame_first() -> None:
    session = SessionBuilder(world_size=300).session
    lanes = choose_lanes(session, first=(250, 999), most=64)
    assert lanes[0].ranks == (250,)
    assert len(lanes) <= 64
    assert len({lane.ranks for lane in lanes}) == len(lanes)
    assert [lane.ranks for lane in choose_lanes(SessionBuilder(world_size=3).session)] == [
        (0,), (1,), (2,)
    ]  # fmt: skip


def test_every_rank_is_in_one_lane_by_host_or_in_runs() -> None:
    session = SessionBuilder(world_size=300).session
    lanes = fold_lanes(session, first=(7,))
    assert sorted(rank for lane in lanes for rank in lane.ranks) == list(range(300))
    assert lanes[0].label == "rank 7"
    assert len(lanes) <= 33
    for rank, log in session.ranks.items():
        log.host = f"n{rank // 100}"
    assert [lane.label for lane in fold_lanes(session)] == ["n0", "n1", "n2"]
