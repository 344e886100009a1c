"""The timeline: what a person sees of ranks x time, and where the keys go."""

import pytest
from textual.pilot import Pilot

from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.targets import OpTarget
from distdbg.tui.time_lanes import TimeLanes
from distdbg.tui.views.timeline import TimelineView
from distdbg.view.snapshot import Bar, GroupRow
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row, text_of

pytestmark = pytest.mark.tui


def bar(number: int, begin: float, end: float | None, moved: float | None = None) -> Bar:
    """An all_reduce on 'world'; times are before now."""
    return Bar(
        number=number,
        kind="all_reduce",
        name=f"all_reduce #{number}",
        group="0",
        seq=number,
        issued=NOW - begin,
        started=None if moved is None else NOW - moved,
        ended=None if end is None else NOW - end,
        has_failed=end is not None and moved is None,
    )


def made_up() -> MadeUpFeed:
    feed = MadeUpFeed(job(row(0), row(1, RankState.DEAD, host="n15"), row(2)))
    feed.change(groups=(GroupRow(name="0", label="world", ranks=(0, 1, 2)),))
    feed.all_bars = {
        0: [bar(1, 20, 5, 12), bar(2, 3, None)],
        1: [bar(1, 14, 5)],
        2: [bar(1, 12.5, 5, 12), bar(2, 2, None)],
    }
    return feed


def app_of(feed: MadeUpFeed) -> TopApp:
    return TopApp(feed, now=lambda: NOW, view="timeline")


def lane_of(app: TopApp, rank: int) -> str:
    return next(line for line in text_of(app).splitlines()[4:] if line.startswith(f"{rank:>5} "))


def test_waiting_moving_failed_and_in_flight_are_told_apart_by_letters_alone() -> None:
    app = app_of(made_up())

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert "───" in lane_of(app, 0)
        assert "all_reduce #1" in lane_of(app, 0)
        assert "███" in lane_of(app, 0)
        assert "▸" in lane_of(app, 0)
        assert "✗" in lane_of(app, 1)
        assert "✗" not in lane_of(app, 2)
        assert "rank 0  all_reduce #2 on group 'world'  in flight  waited 3.0 s" in text_of(app)

    drive(app, script, (100, 24))


def test_the_cursor_goes_from_op_to_op_and_from_rank_to_rank() -> None:
    app = app_of(made_up())

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("comma")
        assert "rank 0  all_reduce #1 on group 'world'  waited 8.0 s, transfer 7.0 s" in text_of(
            app
        )
        await pilot.press("down", "down")
        assert "rank 2  " in text_of(app)
        await pilot.press("full_stop")
        view = app.trail[-1]
        assert isinstance(view, TimelineView)
        target = view.target()
        assert isinstance(target, OpTarget)
        assert (target.key.group, target.key.rank, target.key.number) == ("0", 2, 1)
        await pilot.press("enter")
        assert app.trail[-1].crumb == "all_reduce #1"

    drive(app, script, (100, 24))


def test_it_zooms_about_the_cursor_scrolls_and_shows_all_again() -> None:
    app = app_of(made_up())

    async def script(pilot: Pilot[None]) -> None:
        lanes = app.query_one(TimeLanes)
        assert lanes.follows
        await pilot.press("left")
        assert not lanes.follows
        long, at = lanes.end - lanes.begin, lanes.at
        share = (at - lanes.begin) / long
        await pilot.press("plus", "plus")
        assert lanes.end - lanes.begin < long / 2
        assert abs((lanes.at - lanes.begin) / (lanes.end - lanes.begin) - share) < 1e-6
        await pilot.press("minus", "minus")
        assert abs(lanes.end - lanes.begin - long) < 1e-3
        await pilot.press("0")
        assert lanes.begin < NOW - 185 < NOW < lanes.end
        await pilot.press("space")
        assert lanes.follows
        assert "follows" in text_of(app)

    drive(app, script, (100, 24))


@pytest.mark.slow
def test_a_click_puts_the_cursor_there_and_the_wheel_goes_through_the_ranks() -> None:
    app = app_of(made_up())

    async def script(pilot: Pilot[None]) -> None:
        lanes = app.query_one(TimeLanes)
        await pilot.click(TimeLanes, offset=(70, 3))
        assert lanes.rank == 2
        assert lanes.bar is not None
        await pilot._post_mouse_events([_wheel_up()], TimeLanes, offset=(50, 3))
        await pilot.pause()
        assert lanes.rank == 0

    def _wheel_up() -> type:
        from textual.events import MouseScrollUp

        return MouseScrollUp

    drive(app, script, (100, 24))


def test_the_filter_and_the_faults_toggle_leave_the_lanes_that_fit() -> None:
    app = app_of(made_up())

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("F")
        assert app.query_one(TimeLanes).ranks == [1]
        await pilot.press("F", "slash", *"n14", "enter")
        await pilot.pause()
        assert list(app.query_one(TimeLanes).ranks) == [0, 2]

    drive(app, script, (100, 24))


def test_a_terminal_of_80_columns_shows_as_many_ranks_as_it_has_lines_and_pages() -> None:
    feed = MadeUpFeed(job(*(row(rank) for rank in range(100))))
    feed.all_bars = {rank: [bar(1, 20, 5, 12)] for rank in range(100)}
    app = app_of(feed)

    async def script(pilot: Pilot[None]) -> None:
        assert "17 of 100 ranks" in text_of(app)
        await pilot.press("pagedown", "pagedown")
        assert app.query_one(TimeLanes).rank == 32
        assert "   32 " in text_of(app)

    drive(app, script, (80, 24))


def test_the_cursor_goes_with_time_until_somebody_puts_it_elsewhere() -> None:
    feed, moments = made_up(), [NOW]
    app = TopApp(feed, now=lambda: moments[0], view="timeline")

    async def later(pilot: Pilot[None], seconds: float) -> None:
        moments[0] += seconds
        app.tick()
        await pilot.pause()

    async def script(pilot: Pilot[None]) -> None:
        await later(pilot, 40)
        assert "rank 0  all_reduce #2 on group 'world'  in flight  waited 43 s" in text_of(app)
        await pilot.press("comma")
        assert "rank 0  all_reduce #1 on" in text_of(app)
        await later(pilot, 5)
        assert "rank 0  all_reduce #1 on" in text_of(app)
        await pilot.press("space")
        await later(pilot, 5)
        assert "rank 0  all_reduce #2 on" in text_of(app)

    drive(app, script, (100, 24))
