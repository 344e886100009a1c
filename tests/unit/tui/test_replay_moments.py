"""What a replay finds by bisection is what is there."""

from collections.abc import Iterator
from random import Random

import pytest

from distdbg.diagnose.as_of import session_at
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.record.format import Status
from distdbg.record.rank_state import RankState
from distdbg.tui.replay.bars import MAX_BARS, Bars
from distdbg.tui.replay.details import rank_detail, stacks_at
from distdbg.tui.replay.moments import Moments, RankMoments
from distdbg.tui.replay.ops import op_rows
from distdbg.tui.replay.ranks import group_reports, rank_row
from tests.support.planted import FAULTS, plant
from tests.support.session_builder import SessionBuilder

S = 10**9


def chaos(seed: int) -> Session:
    """A rank whose ops overlap as they like; some never end."""
    random = Random(seed)
    build = SessionBuilder(1, now_s=100)
    at = 0.0
    for _ in range(60):
        at += random.random()
        took = random.choice((0.01, 0.5, 5.0, 30.0, None))
        ended = None if took is None else at + took * random.random()
        build.op(0, "all_reduce", at_s=at, ended_s=ended, is_async=random.random() < 0.7)
    return build.session


def moments_of(session: Session) -> Iterator[int]:
    for log in session.ranks.values():
        for at in [*log.ops.issued_ns, *log.ops.ended_ns]:
            if at != NEVER:
                yield from (at - 1, at, at + 1)


@pytest.mark.parametrize("seed", range(8))
def test_ops_in_flight_and_progress_are_those_of_a_whole_look(seed: int) -> None:
    session = chaos(seed)
    ops = session.ranks[0].ops
    mine = RankMoments(session.ranks[0])
    for at in moments_of(session):
        assert mine.open(at) == [
            i
            for i in range(len(ops))
            if ops.issued_ns[i] <= at and (ops.ended_ns[i] == NEVER or ops.ended_ns[i] > at)
        ]
        times = [t for t in [*ops.issued_ns, *ops.ended_ns] if t != NEVER]
        assert mine.moved_ns(at) == max((t for t in times if t <= at), default=NEVER)
        assert mine.next_ns(at) == min((t for t in times if t > at), default=None)
        touching = {*mine.touching(at, at + S), *mine.never_ended(at + S)}
        assert touching >= {
            i
            for i in range(len(ops))
            if ops.issued_ns[i] <= at + S and (ops.ended_ns[i] == NEVER or ops.ended_ns[i] >= at)
        }


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_rows_of_a_moment_are_those_of_the_session_as_it_was(fault: str) -> None:
    session = plant(16, 40, fault)
    moments = Moments(session)
    for part in (0, 3, 5, 8, 10):
        at = session.now_ns * part // 10
        then = Moments(session_at(session, at))
        for rank in session.ranks:
            assert rank_row(moments, rank, at) == rank_row(then, rank, at)
        assert group_reports(moments, at) == group_reports(then, at)
        op_rows(moments, at)
        stacks_at(moments, None, at)
        assert rank_detail(moments, 0, at) is not None


def test_of_very_many_ops_in_one_place_the_failed_and_the_sums_are_kept() -> None:
    build = SessionBuilder(1, now_s=100)
    for at in range(5000):
        build.op(
            0, "all_reduce", at_s=at / 100, started_s=at / 100 + 0.002, ended_s=at / 100 + 0.006,
            status=Status.TIMEOUT if at == 1234 else 0,
        )  # fmt: skip
    build.op(0, "barrier", at_s=60)
    bars = Bars(Moments(build.session)).of(0, 0, 100 * S)
    assert len(bars) <= 2 * MAX_BARS
    assert [bar.seq for bar in bars if bar.has_failed] == [1235]
    assert [bar.kind for bar in bars if bar.ended is None] == ["barrier"]
    done = [bar for bar in bars if bar.ended is not None and not bar.has_failed]
    assert sum((bar.ended or 0) - bar.issued for bar in done) == pytest.approx(30.0, rel=0.01)
    assert sum((bar.started or 0) - bar.issued for bar in done) == pytest.approx(10.0, rel=0.01)
    assert any("ops, the longest all_reduce" in bar.name for bar in bars)
    few = Bars(Moments(build.session)).of(0, 12 * S, int(12.5 * S))
    assert all("longest" not in bar.name for bar in few)
    assert len(few) == pytest.approx(51, abs=1)


def test_the_table_of_ops_counts_a_collective_once_and_finds_who_comes_late() -> None:
    build = SessionBuilder(4)
    for step in range(10):
        for rank in range(4):
            at = step + (0.3 if rank == 2 else 0.01 * rank)
            build.op(
                rank, "all_reduce", at_s=at, started_s=step + 0.3, ended_s=step + 0.4,
                inputs=[(250_000_000,)], dtype="float32", nbytes=10**9,
            )  # fmt: skip
    [row] = op_rows(Moments(build.session), int(5.5 * S))
    assert (row.group, row.kind, row.count, row.failed) == ("world", "all_reduce", 6, 0)
    assert row.nbytes == 6 * 10**9
    assert row.late == ((2, 1.0),)
    assert row.p50_s == pytest.approx(0.385, abs=0.02)
    assert row.bus_nbytes_per_s == pytest.approx(1.5 * 10**9 / 0.1, rel=0.01)


def test_a_rank_that_was_ended_keeps_the_place_in_which_it_was_seen() -> None:
    build = SessionBuilder(2, now_s=40.0)
    for rank in range(2):
        build.op(rank, "all_reduce", seq=1, at_s=1.0, ended_s=1.5, site="slp.py:12 (<module>)")
    build.seen(1, RankState.STOPPED, since_s=3.0, site="/home/me/slp.py:6 (load)")
    build.end(1, at_s=30.0, cause="signal", signal=15)
    moments = Moments(build.session)
    for at_s in (10, 35):
        assert rank_row(moments, 1, at_s * 10**9).site == "slp.py:6 (load)"
    assert rank_row(moments, 1, 2 * 10**9).site == ""
    assert rank_row(moments, 1, 35 * 10**9).state is RankState.DEAD
