"""A frame with a made-up job in it, and how a test types and looks."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.view import Page
from distdbg.view.snapshot import Snapshot
from tests.tui.made_up import NOW, MadeUpFeed, job, row, text_of, until

Script = Callable[[Pilot[None]], Awaitable[None]]


class Detail(Page):
    """What a test opens."""

    @property
    def crumb(self) -> str:
        return "rank 1"


def made(snapshot: Snapshot | None = None, **more: Any) -> tuple[TopApp, MadeUpFeed]:
    if snapshot is None:
        snapshot = job(
            row(0, RankState.WAITING),
            row(1, RankState.DEAD, op="", why="was killed by SIGKILL"),
            row(2, op="broadcast #7 on group 'dp'"),
        )
    feed = MadeUpFeed(snapshot)
    return TopApp(feed, now=lambda: NOW, environ={}, **more), feed


def lines(app: TopApp) -> list[str]:
    return text_of(app).splitlines()


def shown(app: TopApp) -> list[int]:
    """The ranks of the table, in order."""
    return [
        int(line.split()[0])
        for line in lines(app)[4:]
        if line.split()[:1] and line[:6].strip().isdecimal()
    ]


async def settle(pilot: Pilot[None]) -> None:
    await pilot.pause()
    await pilot.pause()


async def enter(pilot: Pilot[None], app: TopApp, kind: str, text: str) -> None:
    """As if it was typed, but faster."""
    if kind == ":":
        app.action_command(text)
    else:
        app.action_filter()
        app.line.value = text
    await pilot.press("enter")
    await settle(pilot)


async def answered(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    """Wait for a thread of the app."""
    await until(pilot, is_so)
    await settle(pilot)
