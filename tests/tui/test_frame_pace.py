"""At most ten redraws a second, whatever comes; and a single key is answered at once."""

import time
from dataclasses import replace

import pytest
from textual import events
from textual.geometry import Size
from textual.pilot import Pilot

from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.pace import MAX_PER_S, RedrawPace
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


class CountingApp(TopApp):
    redraws = 0

    def post_display_hook(self) -> None:
        self.redraws += 1


def test_the_first_redraw_after_a_rest_is_made_at_once_and_the_next_one_waits() -> None:
    moments = iter([10.0, 10.0, 10.0625, 10.125, 10.125])
    pace = RedrawPace(0.1, clock=lambda: next(moments))
    assert [pace.take(), pace.take(), pace.take()] == [True, False, True]


@pytest.mark.slow
def test_keys_mouse_sizes_and_news_together_make_ten_redraws_a_second() -> None:
    feed = MadeUpFeed(job(*(row(rank) for rank in range(64))))
    app = CountingApp(feed, now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        app.pace.between_s = 1 / MAX_PER_S
        await pilot.pause(0.3)
        driver = app._driver
        assert driver is not None
        begin, before = time.monotonic(), app.redraws
        number = 0
        while time.monotonic() < begin + 2.0 or number <= 40 or app.redraws - before <= 10:
            assert time.monotonic() < begin + 30, "it does not draw"
            number += 1
            key = "down" if number % 40 < 20 else "up"
            app.post_message(events.Key(key, None))
            app.post_message(events.MouseScrollDown(None, 5, 8, 0, 1, 0, False, False, False))
            if number % 25 == 0:
                size = Size(100 + number % 7, 30)
                app.post_message(events.Resize(size, size))
            ranks = {
                rank: replace(one, state=RankState.WAITING, cpu=number % 100 / 100)
                for rank, one in feed.snapshot.ranks.items()
            }
            feed.change(ranks=ranks)
            app.tick()
            await pilot._wait_for_screen(0.5)
        took = time.monotonic() - begin
        assert app.redraws - before <= MAX_PER_S * took + 1

    drive(app, script)
