"""A finished run in the dashboard: scrubbed through by the same views, from its records alone."""

import time
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from distdbg.diagnose.session import Session
from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.replay_feed import ReplayFeed
from distdbg.tui.replayed import TimedFeed
from distdbg.tui.scrubber import Scrubber
from distdbg.view.feed import Topic
from distdbg.view.snapshot import FeedLink, OpKey
from tests.support.session_builder import SessionBuilder
from tests.tui.made_up import drive, text_of, until

pytestmark = pytest.mark.tui


def near(at: float) -> object:
    """A moment; it is sought a little later than what happened at it."""
    return pytest.approx(at, abs=1e-5)


def killed() -> Session:
    """Four ranks; rank 2 is killed at 5.5 s, the others wait for it and time out at 15 s."""
    build = SessionBuilder(4, now_s=16)
    for rank in range(4):
        for step in range(5):
            came = step + 0.1 + 0.1 * rank
            build.op(
                rank, "all_reduce", at_s=came, started_s=step + 0.4, ended_s=step + 0.6,
                site="train.py:80 (step)", inputs=[(4,)], dtype="float32",
            )  # fmt: skip
        if rank != 2:
            build.op(
                rank, "all_reduce", at_s=5.1, ended_s=15.0, status=2, site="train.py:80 (step)"
            )
    build.end(2, at_s=5.5, cause="signal", signal=9)
    return build.session


def wait_for(is_so: Callable[[], object]) -> None:
    """What the feed makes in its thread takes a moment."""
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)  # it works in a thread


def test_each_moment_shows_what_the_ranks_did_then() -> None:
    feed = ReplayFeed(killed())
    try:
        assert isinstance(feed, TimedFeed)
        feed.seek(2.2)
        rows = feed.latest().ranks
        assert [rows[rank].state for rank in range(4)] == [
            RankState.WAITING, RankState.WAITING, RankState.RUNNING, RankState.RUNNING,
        ]  # fmt: skip
        assert rows[0].op == "all_reduce #3 on group 'world'"
        assert rows[0].site == "train.py:80 (step)"
        assert rows[0].seqs == (("world", 3),)
        assert rows[3].seqs == (("world", 2),)
        feed.seek(10.0)
        rows = feed.latest().ranks
        assert rows[2].state is RankState.DEAD
        assert rows[2].why == "was killed by SIGKILL"
        assert rows[0].state is RankState.WAITING
        assert rows[0].state_at == near(5.1)
        assert feed.latest().link is FeedLink.REPLAY
    finally:
        feed.close()


def test_the_verdict_of_a_moment_knows_nothing_of_what_came_later() -> None:
    feed = ReplayFeed(killed())
    try:
        wait_for(lambda: feed.latest().verdict)
        assert "rank 2" in feed.latest().lines[0]
        feed.seek(3.0)
        wait_for(lambda: not feed.latest().lines)
        feed.seek(8.0)
        wait_for(lambda: feed.latest().lines)
        assert "rank 2" in feed.latest().lines[0]
        assert [wait.rank for wait in feed.latest().waits] == [0, 1, 3]
        assert feed.latest().waits[0].on == (2,)
        wait_for(lambda: any(stop.is_fault for stop in feed.stops()))
        assert "SIGKILL" in " ".join(stop.what for stop in feed.stops())
    finally:
        feed.close()


def test_groups_ops_details_and_stacks_are_those_of_the_moment() -> None:
    feed = ReplayFeed(killed())
    try:
        feed.want(frozenset({Topic.GROUPS, Topic.OPS}))
        feed.seek(2.2)
        group = feed.latest().groups[0]
        assert (group.label, dict(group.issued)) == ("world", {0: 3, 1: 3, 2: 2, 3: 2})
        assert group.in_flight == 2
        wait_for(lambda: feed.latest().ops)
        row = feed.latest().ops[0]
        assert (row.kind, row.count, row.failed, row.late) == ("all_reduce", 2, 0, ((3, 1.0),))
        assert row.wait_p99_s == pytest.approx(0.3, abs=0.01)
        op = feed.op(OpKey(group="world", seq=3))
        assert op is not None
        assert [one.has_come for one in op.arrivals] == [True, True, False, False]
        assert "ranks 2-3 have not called it" in op.says[0]
        assert op.arrivals[0].form == "float32[4]"
        detail = feed.rank(0)
        assert detail is not None
        assert [bar.name for bar in detail.in_flight] == ["all_reduce #3"]
        stacks = feed.stacks(None, False)
        assert stacks.how == "as recorded"
        assert stacks.groups[0].ranks == (0, 1)
        assert stacks.groups[0].frames == ("step (train.py:80)",)
    finally:
        feed.close()


def test_the_scrubber_steps_jumps_to_errors_and_shows_where_it_is() -> None:
    feed = ReplayFeed(killed())
    app = TopApp(feed, now=lambda: 0.0)

    async def script(pilot: Pilot[None]) -> None:
        wait_for(lambda: feed.stops())
        await pilot.press("ctrl+home")
        assert app.snapshot.at == near(0.1)
        await pilot.press("right_square_bracket")
        assert app.snapshot.at == near(0.2)
        await pilot.press("right_curly_bracket")
        assert app.snapshot.at > 2
        await pilot.press("left_square_bracket", "left_curly_bracket")
        assert app.snapshot.at == near(0.1)
        await pilot.press("right_parenthesis")
        assert app.snapshot.at == near(5.5)
        assert "rank 2 was killed by SIGKILL" in text_of(app).splitlines()[-2]
        await pilot.press("ctrl+end")
        assert app.snapshot.at == near(16)
        await pilot.press("left_parenthesis")
        assert 5 < app.snapshot.at < 16
        await pilot.press("end", "home")  # the table has them; elsewhere they are the replay's
        await pilot.press("colon", *"at 3.3", "enter")
        assert app.snapshot.at == near(3.4)
        assert "replay" in text_of(app).splitlines()[0]

    drive(app, script, (120, 24))
    feed.close()


def test_it_plays_as_fast_as_asked_and_stands_at_the_end() -> None:
    feed = ReplayFeed(killed())
    app = TopApp(feed, now=lambda: 0.0)

    async def script(pilot: Pilot[None]) -> None:
        scrubber, now = app.query_one(Scrubber), [0.0]
        scrubber._clock = lambda: now[0]
        await pilot.press("colon", *"speed 200", "enter")
        await pilot.press("space")  # from the end it begins anew
        assert scrubber.is_playing
        now[0] = 0.03
        await until(pilot, lambda: 5 < app.snapshot.at < 8)
        assert scrubber.is_playing
        now[0] = 0.2
        await until(pilot, lambda: not scrubber.is_playing)
        assert app.snapshot.at == near(16)

    drive(app, script, (120, 24))
    feed.close()


def test_the_mouse_drags_through_time() -> None:
    feed = ReplayFeed(killed())
    app = TopApp(feed, now=lambda: 0.0, view="timeline")

    async def script(pilot: Pilot[None]) -> None:
        await pilot.mouse_down(Scrubber, offset=(20, 0))
        assert app.snapshot.at == near(0.1)
        await pilot.hover(Scrubber, offset=(60, 0))
        assert 5 < app.snapshot.at < 11
        await pilot.mouse_up(Scrubber, offset=(60, 0))
        await pilot.hover(Scrubber, offset=(30, 0))
        assert 5 < app.snapshot.at < 11
        assert "┃" in text_of(app)

    drive(app, script, (120, 24))
    feed.close()


@pytest.mark.slow
def test_a_session_without_any_op_is_shown_as_well() -> None:
    build = SessionBuilder(2, now_s=3)
    build.lose(1)
    feed = ReplayFeed(build.session)
    app = TopApp(feed, now=lambda: 0.0, view="timeline")

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("space", "left_square_bracket", "r", "t", "plus", "left", "full_stop")
        assert "replay" in text_of(app)

    drive(app, script, (80, 24))
    feed.close()
