"""Waits: the graph and the list."""

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.view.feed import Topic
from distdbg.view.snapshot import WaitRow
from tests.tui import example_job
from tests.tui.eyes import draw, narrow, press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui

RING = tuple(
    WaitRow(rank=rank, on=((rank + 1) % 3,), op=f"recv from rank {(rank + 1) % 3}",
            site="ring.py:12 (exchange)", can_go_on=False, since=NOW - 12)
    for rank in range(3)
)  # fmt: skip


def test_the_graph_folds_equal_waits_and_enter_opens_their_ranks() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "═ rank 3 ═", "═ cause ═", "─ ranks 0-2,4-5 ─", "31 s")
        assert Topic.WAITS in feed.wanted
        assert screen.index("rank 3 ═") < screen.index("─ ranks 0-2,4-5")
        assert screen.count("◀") == 1
        await press(pilot, "down", "enter")
        await see(pilot, "waits > ranks 0-2,4-5", "all_reduce #42")
        await press(pilot, "escape", "up", "enter")
        await see(pilot, "waits > rank 3")

    drive(TopApp(feed, now=lambda: NOW, view="waits"), script, size=(80, 24))


def test_the_core_of_a_deadlock_is_marked_in_the_graph_and_in_the_list() -> None:
    others = tuple(WaitRow(rank=rank, on=(0,), op="barrier #3", site="") for rank in (3, 4))
    feed = MadeUpFeed(job(*(row(rank) for rank in range(5)), waits=RING + others))

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "rank 0 ═", "rank 1 ═", "rank 2 ═", "ranks 3-4")
        assert screen.count("deadlock, 12 s") == 3
        await press(pilot, "F")
        await see(pilot, "rank 2 ═", no=("ranks 3-4",))
        await press(pilot, "v")
        screen = await see(pilot, "waits for", "ring.py:12", no=("═", "barrier"))
        assert screen.count("deadlock") == 3
        await press(pilot, "F", "v")
        await narrow(pilot, "barrier")
        await see(pilot, "ranks 3-4", "waits for no rank", no=("rank 2 ═",))

    drive(TopApp(feed, now=lambda: NOW, view="waits"), script, size=(100, 30))


def test_the_list_has_a_row_per_rank_and_enter_opens_it() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "═ rank 3 ═")
        await press(pilot, "v")
        screen = await see(pilot, "waits for", no=("═",))
        assert sum("rank 3 " in line and "31 s" in line for line in screen.splitlines()) == 5
        await press(pilot, "down", "enter")
        await see(pilot, "waits > rank 1")

    drive(TopApp(example_job.feed(), now=lambda: NOW, view="waits"), script)


def test_when_nobody_waits_it_says_so_and_when_somebody_does_it_is_there() -> None:
    feed = MadeUpFeed(job(row(0), row(1), row(2)))

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "no rank waits for another")
        feed.change(waits=RING)
        await draw(pilot)
        await see(pilot, "deadlock, 12 s")
        feed.change(waits=())
        await draw(pilot)
        await see(pilot, "no rank waits for another", no=("deadlock",))

    drive(TopApp(feed, now=lambda: NOW, view="waits"), script)
