"""Log: merged output that follows the end."""

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.view.feed import Topic
from distdbg.view.snapshot import FeedLink, LogRow
from tests.tui import example_job
from tests.tui.eyes import draw, narrow, press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


def lines(begin: int, end: int) -> list[LogRow]:
    return [LogRow(at=NOW, ranks=(0,), stream="out", text=f"line {i}.") for i in range(begin, end)]


def test_it_shows_ranks_and_marks_err_and_enter_shows_a_long_line_whole() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "Killed", "step 39 loss 0.51")
        assert Topic.LOG in feed.wanted
        rows = {
            line.split()[0]: line for line in screen.splitlines() if "step" in line or "err" in line
        }
        assert "err" in rows["7"]
        assert "err" not in rows["0-7"]
        assert "…" in rows["3"]
        await press(pilot, "up", "enter")
        screen = await see(pilot, "log > line of rank 3", "WARNING: shard 17", no=("x…",))
        assert screen.count("x") >= 200
        await press(pilot, "enter")
        await see(pilot, "line of rank 3 > rank 3")

    drive(TopApp(feed, now=lambda: NOW, view="log"), script, size=(80, 24))


def test_it_follows_the_end_unless_scrolled() -> None:
    feed = MadeUpFeed(job(row(0)))
    feed.lines = lines(0, 100)

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "line 99.")
        feed.lines = [*feed.lines[50:], *lines(100, 150)]
        await draw(pilot)
        await see(pilot, "line 149.")
        await press(pilot, "pageup", "pageup")
        await see(pilot, no=("line 149.",))
        feed.lines = [*feed.lines, *lines(150, 200)]
        await draw(pilot)
        await see(pilot, no=("line 199.",))
        await press(pilot, "end")
        await see(pilot, "line 199.")
        feed.lines = [*feed.lines, *lines(200, 210)]
        await draw(pilot)
        await see(pilot, "line 209.")
        feed.lines = lines(500, 510)  # another start of the job
        await draw(pilot)
        await see(pilot, "line 500.", "line 509.", no=("line 209.",))

    drive(TopApp(feed, now=lambda: NOW, view="log"), script, size=(80, 24))


def test_the_filter_hides_lines_also_those_that_come_and_faults_are_lines_of_stderr() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "Killed")
        await narrow(pilot, "!step")
        await see(pilot, "WARNING", "Killed", no=("step 3", "step 4"))
        feed.lines = [*feed.lines, LogRow(at=NOW, ranks=(0,), stream="out", text="step 41"),
                      LogRow(at=NOW, ranks=(0,), stream="out", text="saved")]  # fmt: skip
        await draw(pilot)
        await see(pilot, "saved", no=("step 3", "step 4"))
        await press(pilot, "F")
        await see(pilot, "WARNING", no=("saved",))
        await narrow(pilot, "nowhere")
        await see(pilot, "no match")

    drive(TopApp(feed, now=lambda: NOW, view="log"), script, size=(80, 24))


def test_where_no_output_is_kept_it_says_how_to_keep_it() -> None:
    feed = MadeUpFeed(job(row(0)))

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "no output is kept; `distdbg run --tee 3` or `--redirects 3` keeps it")
        feed.lines = [LogRow(at=None, ranks=(), stream="err", text="no output is kept: look there")]
        await draw(pilot)
        await see(pilot, "no output is kept: look there", no=("err",))
        feed.lines = []
        feed.change(link=FeedLink.OVER)
        await draw(pilot)
        await see(pilot, "the job is over; its replay shows")

    drive(TopApp(feed, now=lambda: NOW, view="log"), script, size=(100, 24))
