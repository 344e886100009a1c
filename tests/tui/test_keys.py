"""Keys that go through a table, a text and the lanes of time: each of them, by what it does."""

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.tui.sheet import Sheet
from distdbg.tui.table import RowTable
from distdbg.tui.time_lanes import TimeLanes
from distdbg.tui.view import Page
from distdbg.tui.views import VIEWS
from distdbg.view.snapshot import Bar, StackGroup, Stacks, WaitRow
from tests.tui.eyes import press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row, text_of

pytestmark = pytest.mark.tui

RANKS = 60


def many() -> MadeUpFeed:
    return MadeUpFeed(job(*(row(n, cpu=(n * 7 % RANKS) / 100) for n in range(RANKS))))


@pytest.mark.slow
def test_each_view_has_its_key_wherever_one_is() -> None:
    app = TopApp(many(), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        for view in (*VIEWS, *reversed(VIEWS)):
            await press(pilot, view.key)
            page: Page = app.trail[-1]
            assert isinstance(page, view)
            assert len(app.trail) == 1

    drive(app, script, (100, 24))


def test_the_keys_of_a_table_move_and_sort() -> None:
    app = TopApp(many(), now=lambda: NOW)

    async def script(pilot: Pilot[None]) -> None:
        table = app.query_one(RowTable)
        for key, cursor in (
            ("j", 1), ("down", 2), ("k", 1), ("up", 0), ("up", 0), ("end", 59), ("j", 59), ("home", 0),
        ):  # fmt: skip
            await press(pilot, key)
            assert table.cursor == cursor, key
        await press(pilot, "pagedown")
        page = table.cursor
        assert isinstance(page, int)
        assert 10 < page < 24
        await press(pilot, "pagedown", "pageup")
        assert table.cursor == page
        await press(pilot, "home", "greater_than_sign")
        assert table.sorted_by == 1
        await press(pilot, "greater_than_sign", "greater_than_sign", "less_than_sign")
        assert table.sorted_by == 2
        await press(pilot, "less_than_sign", "i")
        assert (table.sorted_by, table.keys[0]) == (1, RANKS - 1)
        await press(pilot, "i")
        assert table.keys[0] == 0

    drive(app, script, (100, 24))


def test_the_keys_of_a_text_move() -> None:
    feed = many()
    frames = (*(f"step (train.py:{n})" for n in range(RANKS)), "x" * 300)
    group = StackGroup(ranks=(0,), thread="MainThread", frames=frames)
    feed.all_stacks = Stacks(groups=(group,), how="made up")
    app = TopApp(feed, now=lambda: NOW, view="stacks")

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "train.py:0")
        await press(pilot, "plus")
        sheet = app.query_one(Sheet)
        await press(pilot, "pagedown")
        down = sheet.scroll_y
        assert down > 0
        await press(pilot, "pageup", "home", "end")
        assert sheet.scroll_y > down
        await press(pilot, "k", "up", "j", "down")
        await press(pilot, "home")
        assert sheet.scroll_y == 0

    drive(app, script, (100, 24))


@pytest.mark.slow
def test_a_graph_that_is_too_wide_is_moved_sideways() -> None:
    feed = many()
    feed.change(
        waits=tuple(
            WaitRow(rank=rank, on=(rank + 1,), op=f"recv from rank {rank + 1}", site="train.py:9")
            for rank in range(8)
        )
    )
    app = TopApp(feed, now=lambda: NOW, view="waits")

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "rank 8")
        await press(pilot, "home")  # what the last line says of the size goes away
        before = await see(pilot, "rank 8")
        await press(pilot, "right")
        assert text_of(app) != before
        await press(pilot, "left")
        assert text_of(app) == before

    drive(app, script, (40, 60))


def test_the_keys_of_the_timeline_move_through_ranks_ops_and_time() -> None:
    feed = many()
    feed.all_bars = {
        rank: [
            Bar(number=n, kind="barrier", name=f"barrier #{n}", group="0", seq=n,
                issued=NOW - 100 + 10 * n, started=NOW - 99 + 10 * n, ended=NOW - 98 + 10 * n)
            for n in range(1, 8)
        ]
        for rank in range(RANKS)
    }  # fmt: skip
    app = TopApp(feed, now=lambda: NOW, view="timeline")

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "barrier")
        lanes = app.query_one(TimeLanes)
        for key, rank in (("j", 1), ("down", 2), ("k", 1), ("up", 0)):
            await press(pilot, key)
            assert lanes.rank == rank, key
        await press(pilot, "pagedown")
        assert lanes.rank is not None
        assert lanes.rank > 5
        await press(pilot, "pageup")
        assert lanes.rank == 0
        await press(pilot, "shift+tab", "shift+tab", "comma")
        assert lanes.bar is not None
        before = lanes.bar.number
        await press(pilot, "tab", "full_stop")
        assert lanes.bar.number == before + 2
        long = lanes.end - lanes.begin
        await press(pilot, "equals_sign")
        assert lanes.end - lanes.begin < long
        await press(pilot, "plus", "plus", "minus")
        at = lanes.begin
        await press(pilot, "left")
        little = at - lanes.begin
        await press(pilot, "right")
        assert abs(lanes.begin - at) < 1e-6
        await press(pilot, "shift+left")
        assert at - lanes.begin > 2 * little > 0
        await press(pilot, "shift+right")
        assert abs(lanes.begin - at) < 1e-6

    drive(app, script, (100, 24))
