"""Stacks: taken when asked, equal ones once."""

import threading
from collections.abc import Sequence

import pytest
from textual.pilot import Pilot

from distdbg.errors import DistNetworkError
from distdbg.tui.app import TopApp
from distdbg.view.snapshot import FeedLink, Stacks
from tests.tui import example_job
from tests.tui.eyes import draw, narrow, press, see
from tests.tui.made_up import NOW, MadeUpFeed, drive

pytestmark = pytest.mark.tui


class SlowFeed(MadeUpFeed):
    """Answers when it is told to, and keeps what was asked."""

    def __init__(self) -> None:
        example = example_job.feed()
        super().__init__(example.snapshot)
        self.all_stacks = example.all_stacks
        self.details = example.details
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked: list[tuple[Sequence[int] | None, bool]] = []
        self.error: DistNetworkError | None = None

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        self.asked.append((ranks, native))
        assert self.may_answer.wait(120)
        if self.error is not None:
            raise self.error
        return self.all_stacks


def test_it_says_while_it_takes_and_then_shows_equal_stacks_once() -> None:
    feed = SlowFeed()
    feed.may_answer.clear()
    moment = [NOW]

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "taking the stacks of all ranks ...")
        moment[0] += 3
        await draw(pilot)
        await see(pilot, "taking the stacks of all ranks ... 3.0 s")
        feed.may_answer.set()
        screen = await see(pilot, "py-spy, 5.0 s ago", "▾ ranks 0-2,4-5 (5)  MainThread")
        await see(pilot, "▾ rank 3  MainThread  holds the GIL", "rank 6: it is in the debugger")
        assert screen.index("wait (distdbg") < screen.index("step (train.py:88)")
        assert "... 7 frames further out" in screen
        assert "▸ ranks 0-2,4-5 (5)  pin_memory  wait (threading.py:320)" in screen
        assert feed.asked == [(None, False)]
        await press(pilot, "enter")
        await see(pilot, "stacks > ranks 0-2,4-5")
        await press(pilot, "escape")
        await see(pilot, "▾ rank 3")
        assert len(feed.asked) == 1

    drive(TopApp(feed, now=lambda: moment[0], view="stacks"), script, size=(100, 34))


def test_keys_fold_and_unfold() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "step (train.py:88)")
        await press(pilot, "space")
        await see(pilot, "▸ ranks 0-2,4-5 (5)  MainThread", no=("step (train.py:88)",))
        await press(pilot, "plus")
        await see(pilot, "main (train.py:139)", "▾ ranks 0-2,4-5 (5)  pin_memory")
        await press(pilot, "minus")
        await see(pilot, "▸ rank 3", no=("▾", "main (train.py:139)"))
        await press(pilot, "down", "space")
        await see(pilot, "▾ rank 3", "main (train.py:139)")

    drive(TopApp(SlowFeed(), now=lambda: NOW, view="stacks"), script, size=(100, 40))


def test_they_are_taken_again_of_the_ranks_that_are_seen_with_native_frames_if_wanted() -> None:
    feed = SlowFeed()

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "▾ rank 3")
        await narrow(pilot, "gzip")
        await see(pilot, "▾ rank 3", no=("train.py:88",))
        await press(pilot, "R")
        await see(pilot, "py-spy")
        await press(pilot, "N")
        await see(pilot, "with native frames")
        await press(pilot, "escape", "R")
        assert feed.asked == [(None, False), ((3,), False), ((3,), True), (None, True)]
        await press(pilot, "r", "s")
        await see(pilot, "▾ ranks 0-2,4-5")
        assert len(feed.asked) == 5  # who comes from another view sees what is now

    drive(TopApp(feed, now=lambda: NOW, view="stacks"), script, size=(100, 34))


def test_s_on_a_rank_takes_only_its_stacks() -> None:
    feed = SlowFeed()

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "waiting")
        await press(pilot, "enter", "s")
        await see(pilot, "ranks > rank 3 > stacks of rank 3", "py-spy")
        assert feed.asked == [((3,), False)]

    drive(TopApp(feed, now=lambda: NOW), script)


def test_an_agent_that_does_not_answer_is_a_sentence_and_so_is_a_job_that_is_over() -> None:
    feed = SlowFeed()
    feed.error = DistNetworkError("the agent of n15 does not answer")

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "the agent of n15 does not answer")
        feed.error = None
        await press(pilot, "R")
        await see(pilot, "▾ rank 3", no=("does not answer",))
        feed.all_stacks = Stacks()
        feed.change(link=FeedLink.OVER)
        await draw(pilot)
        await press(pilot, "R")
        await see(pilot, "the job is over, and no stacks were recorded")

    drive(TopApp(feed, now=lambda: NOW, view="stacks"), script, size=(80, 24))
