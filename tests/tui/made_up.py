"""A feed and a clock that a test sets by hand, and how a test drives the app."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from textual.pilot import Pilot

from distdbg.errors import UsageError
from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.view.feed import Action, Topic
from distdbg.view.snapshot import (
    Bar,
    FeedLink,
    LogRow,
    OpDetail,
    OpKey,
    RankDetail,
    RankRow,
    Snapshot,
    Stacks,
)

#: The moment at which every made-up job is looked at.
NOW = 1_800_000_000.0
SETTLE_S = 120.0


def row(rank: int, state: RankState = RankState.RUNNING, **more: Any) -> RankRow:
    """One rank, as it usually is."""
    usual: dict[str, Any] = {
        "host": "n14",
        "pid": 4700 + rank,
        "state_at": NOW - 3.1,
        "moved_at": NOW - 3.4,
        "op": "all_reduce #42 on group 'world'",
        "site": "train.py:88 (step)",
        "seqs": (("world", 42),),
        "cpu": 0.5,
        "rss_nbytes": 41_943_040,
    }
    return RankRow(rank=rank, state=state, **(usual | more))


def job(*rows: RankRow, **more: Any) -> Snapshot:
    """A job of these ranks."""
    usual: dict[str, Any] = {"run": "20261122-071611-63d104", "link": FeedLink.LIVE}
    ranks = {one.rank: one for one in rows}
    return Snapshot(at=NOW, began=NOW - 185, world_size=len(ranks), ranks=ranks, **(usual | more))


class MadeUpFeed:
    """Implements Feed: shows what a test gives it, and keeps what was asked."""

    title = "made up"
    can_change = True
    address = ""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.wanted: frozenset[Topic] = frozenset()
        self.done: list[tuple[Action, Mapping[str, object]]] = []
        self.refuses: str = ""
        self.all_bars: dict[int, list[Bar]] = {}
        self.lines: list[LogRow] = []
        self.ops: dict[OpKey, OpDetail] = {}
        self.details: dict[int, RankDetail] = {}
        self.all_stacks = Stacks()
        self.times: tuple[float, float] | None = None
        self.is_closed = False

    def change(self, **fields: Any) -> None:
        """What the next look at the feed sees."""
        self.snapshot = replace(self.snapshot, **fields)

    def latest(self) -> Snapshot:
        return self.snapshot

    def want(self, topics: frozenset[Topic]) -> None:
        self.wanted = topics

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        return {
            rank: [
                bar
                for bar in self.all_bars.get(rank, [])
                if bar.issued <= end and (bar.ended is None or bar.ended >= begin)
            ]
            for rank in ranks
        }

    def log(self) -> Sequence[LogRow]:
        return self.lines

    def op(self, key: OpKey) -> OpDetail | None:
        return self.ops.get(key)

    def rank(self, rank: int) -> RankDetail | None:
        return self.details.get(rank)

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        return self.all_stacks

    def do(self, action: Action, **words: object) -> str:
        if self.refuses:
            raise UsageError(self.refuses)
        self.done.append((action, words))
        return f"{action}: done"

    def span(self) -> tuple[float, float] | None:
        return self.times

    def seek(self, at: float) -> None:
        self.change(at=at)

    def close(self) -> None:
        self.is_closed = True


def drive(
    app: TopApp, script: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (120, 30)
) -> None:
    """Run `script` while the app is shown on a terminal of this size; nothing waits for its turn to draw."""
    app.pace.between_s = 0.0

    async def at_rest(*_: float) -> None:
        await rest(app)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await script(pilot)

    # textual takes a process that uses little CPU for a moment for one that is done. One that gets none, on a
    # busy machine, looks the same; and the moment is longer than what nearly all keys take.
    with (
        patch("textual.app.wait_for_idle", at_rest),
        patch("textual.pilot.wait_for_idle", at_rest),
    ):
        asyncio.run(run())


async def until(pilot: Pilot[None], is_so: Callable[[], object]) -> None:
    """Wait for a thread or a timer of the app."""
    end = time.monotonic() + SETTLE_S
    while not is_so():
        assert time.monotonic() < end, (
            f"not so after {SETTLE_S} s; on the screen is\n{text_of(pilot.app)}"
        )  # type: ignore[arg-type]
        await pilot.pause(0.01)


async def rest(app: TopApp) -> None:
    """Until the app has nothing to do but to wait for a timer or a thread, and has drawn all it has done."""
    loop: Any = asyncio.get_running_loop()
    end = time.monotonic() + SETTLE_S
    while True:
        await asyncio.sleep(0)
        screen = app._screen_stack[-1] if app._screen_stack else None
        is_drawn = screen is None or not (
            screen._layout_required
            or screen._scroll_required
            or screen._repaint_required
            or screen._dirty_widgets
            or app._resize_event
        )
        if not loop._ready and (is_drawn or not app.is_running):
            return
        assert time.monotonic() < end, f"after {SETTLE_S} s the app still has something to do"
        if (
            not loop._ready and screen is not None
        ):  # their timers would, up to a sixtieth of a second later
            app.call_later(app._check_resize)
            screen.call_later(screen._on_timer_update)


def text_of(app: TopApp) -> str:
    """What is on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
