"""Thousands of ranks in the ranks view: a row per host, and each key at once."""

import pytest
from textual.pilot import Pilot

from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.details.some_ranks import HostPage
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row, text_of

pytestmark = pytest.mark.tui


def many(count: int = 512) -> MadeUpFeed:
    """Eight ranks per host; rank 19 is dead, rank 30 two ops behind."""
    rows = [row(rank, RankState.WAITING, host=f"n{rank // 8:03}") for rank in range(count)]
    rows[19] = row(19, RankState.DEAD, host="n002", op="", why="was killed by SIGKILL")
    rows[30] = row(30, host="n003", seqs=(("world", 40),))
    return MadeUpFeed(job(*rows))


def line_of(app: TopApp, start: str) -> str:
    return next(line for line in text_of(app).splitlines()[3:] if line.lstrip().startswith(start))


def test_many_ranks_on_many_hosts_are_a_row_per_host_until_h_is_pressed() -> None:
    app = TopApp(many(), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert "1 dead  7 waiting" in line_of(app, "n002")
        assert "16-23" in line_of(app, "n002")
        assert "400 %" in line_of(app, "n000")
        assert "  2 world" in line_of(app, "n003")
        assert "(1 not)" in line_of(app, "n002")
        await pilot.press("h")
        await pilot.pause()
        assert line_of(app, "3 waiting")
        await pilot.press("h")
        await pilot.pause()
        assert line_of(app, "n002")

    drive(app, script, (150, 24))


def test_enter_opens_the_ranks_of_a_host() -> None:
    app = TopApp(many(), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("F", "enter")
        await pilot.pause()
        page = app.trail[-1]
        assert isinstance(page, HostPage)
        assert page.crumb == "host n002"
        assert line_of(app, "19 dead")
        await pilot.press("F", "h")
        await pilot.pause()
        assert line_of(app, "16 waiting")

    drive(app, script, (150, 24))


@pytest.mark.slow
def test_hosts_are_sorted_and_filtered_as_ranks_are() -> None:
    app = TopApp(many(), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("greater_than_sign", "greater_than_sign", "greater_than_sign")
        await pilot.pause()
        assert text_of(app).splitlines()[4].startswith(" n002")  # by state: faults first
        await pilot.press("slash", *"n06[0-3]", "enter")
        await pilot.pause()
        assert [line[1:5] for line in text_of(app).splitlines()[4:8]] == [
            "n060", "n061", "n062", "n063"
        ]  # fmt: skip

    drive(app, script, (150, 24))


def test_few_ranks_or_one_host_are_rows_of_ranks() -> None:
    feed = MadeUpFeed(job(*(row(rank) for rank in range(400))))
    app = TopApp(feed, now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert line_of(app, "0 running")
        await pilot.press("h")
        await pilot.pause()
        assert "0-399" in line_of(app, "n14")

    drive(app, script, (120, 24))
