"""The first view: what a person sees of the ranks."""

import pytest
from textual.pilot import Pilot

from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row, text_of

pytestmark = pytest.mark.tui


def line_of(screen: str, start: str) -> str:
    """The row of a table; the head of the screen is no table."""
    return next(line for line in screen.splitlines()[3:] if line.strip().startswith(start))


def test_it_shows_each_rank_with_its_op_and_for_how_long() -> None:
    waiting = row(0, RankState.WAITING)
    dead = row(1, RankState.DEAD, op="", why="was killed by SIGKILL", state_at=NOW - 90)
    app = TopApp(MadeUpFeed(job(waiting, dead)), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        screen = text_of(app)
        assert "20261122-071611-63d104  2 ranks  3 min 5 s  live" in screen
        assert "1 dead  1 waiting" in screen
        assert "3.1 s all_reduce #42" in line_of(screen, "0 waiting")
        assert "1 min 30 s was killed by SIGKILL" in line_of(screen, "1 dead")

    drive(app, script)


def test_the_time_since_ranks_ended_together_is_not_cut() -> None:
    ended = [row(rank, RankState.ENDED, op="", state_at=NOW - 0.0409 * rank) for rank in range(2)]
    app = TopApp(MadeUpFeed(job(*ended)), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert "40.9 ms" in line_of(text_of(app), "1 ended")

    drive(app, script)
