"""A feed and a clock that a test sets by hand, and how a test drives the app."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from textual.pilot import Pilot

from distdbg.errors import UsageError
from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.feed import Action, Topic
from distdbg.tui.snapshot import (
    Bar,
    Link,
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
    usual: dict[str, Any] = {"run": "20261122-071611-63d104", "link": Link.LIVE}
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

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await script(pilot)

    asyncio.run(run())


def text_of(app: TopApp) -> str:
    """What is on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
