"""Ops, and all ops of one kind."""

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.view.feed import Topic
from tests.tui import example_job
from tests.tui.eyes import press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


def test_it_shows_counts_times_and_who_is_late_and_enter_opens_a_kind() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "all_gather", "not called by rank 3")
        assert Topic.OPS in feed.wanted
        line = next(line for line in screen.splitlines() if line.strip().startswith("all_reduce"))
        for text in ("332", "332.0 MiB", "810 us", "12.3 ms", "200 us", "3.1 GB/s"):
            assert text in line
        await press(pilot, "F")
        await see(pilot, no=("all_gather",))
        await press(pilot, "F", "enter")
        await see(pilot, "ops > all_reduce on world", "each", "1.0 MiB", "p99 11 ms", "rank 5")
        await press(pilot, "end", "enter")
        await see(pilot, "all_reduce on world > rank 0")

    drive(TopApp(feed, now=lambda: NOW, view="ops"), script, size=(140, 30))


def test_the_newest_op_of_its_group_is_one_enter_away() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "332")
        await press(pilot, "enter")
        await see(pilot, "newest op there  #42")
        await press(pilot, *["down"] * 8, "enter")
        await see(pilot, "5 of 8 ranks called it, missing ranks 3,6-7")

    drive(TopApp(example_job.feed(), now=lambda: NOW, view="ops"), script)


def test_without_counters_it_says_so() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "no ops yet, or the agent of this job does not count them")

    drive(TopApp(MadeUpFeed(job(row(0))), now=lambda: NOW, view="ops"), script, size=(80, 24))
