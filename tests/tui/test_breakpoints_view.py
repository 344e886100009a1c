"""Breakpoints, and attaching to a rank."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.view.feed import Action
from distdbg.view.snapshot import FeedLink
from tests.tui import example_job
from tests.tui.eyes import app_of, draw, press, see, type_in
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row

pytestmark = pytest.mark.tui


def test_it_shows_stopped_ranks_and_armed_rules_and_its_keys_change_them() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "in the debugger\n", "armed\n", "on=nan")
        assert "rank 6       12 s  before all_reduce #42 on group 'world'  at train.py:90" in screen
        await press(pilot, "c")
        await see(pilot, "continue: done")
        await press(pilot, "end", "d")
        await see(pilot, "clear: done")
        await press(pilot, "c", "n")
        await type_in(pilot, "rank=3,kind=all_reduce")
        await see(pilot, "break: done")
        await press(pilot, "home", "d")
        await see(pilot, "no breakpoint is selected")
        assert feed.done == [
            (Action.CONTINUE, {"ranks": "6"}),
            (Action.CLEAR, {"id": 2}),
            (Action.CONTINUE, {"ranks": "all"}),
            (Action.BREAK, {"rule": "rank=3,kind=all_reduce"}),
        ]
        await press(pilot, "home", "down", "enter")
        await see(pilot, "breakpoints > rank 6")

    drive(TopApp(feed, now=lambda: NOW, view="breakpoints"), script, size=(120, 24))


def test_it_says_so_when_there_are_none_and_a_reader_changes_nothing() -> None:
    feed = MadeUpFeed(job(row(0)))

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "no breakpoints, and no rank is in the debugger")
        await press(pilot, "c")
        feed.snapshot = example_job.snapshot()
        await draw(pilot)
        await see(pilot, "on=nan")
        await press(pilot, "c", "end", "d", "n")
        await see(pilot, "break: not with --readonly")
        assert feed.done == []
        feed.change(armed=(), stopped=(), link=FeedLink.OVER)
        await draw(pilot)
        await see(pilot, "the job is over: nothing is armed")

    drive(TopApp(feed, now=lambda: NOW, view="breakpoints", readonly=True), script, size=(100, 24))


def test_a_attaches_in_this_terminal_to_the_rank_under_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = example_job.feed()
    app = TopApp(feed, now=lambda: NOW)
    run: list[Sequence[str]] = []
    codes = [0, 0, 5]

    @contextmanager
    def suspend() -> Iterator[None]:
        run.append(["the terminal is free"])
        yield

    def start(command: Sequence[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        run.append(command)
        return subprocess.CompletedProcess(command, codes.pop(0))

    monkeypatch.setattr(app, "suspend", suspend)
    monkeypatch.setattr(subprocess, "run", start)

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "waiting")
        await press(pilot, "down", "down", "a")
        await press(pilot, "enter", "a")
        await press(pilot, "b")
        await see(pilot, "on=nan")
        await press(pilot, "a")
        await see(pilot, "attach to rank 6 ended with code 5")
        await press(pilot, "end", "a")
        await see(pilot, "no rank is selected")

    drive(app, script)
    assert run[0] == ["the terminal is free"]
    assert run[1] == [sys.executable, "-m", "distdbg", "attach", "--rank", "1", feed.address]
    assert [command[-2] for command in run[1::2]] == ["1", "1", "6"]


def test_where_the_terminal_cannot_be_given_away_it_says_what_to_type() -> None:
    feed = example_job.feed()

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "waiting")
        await press(pilot, "a")
        await see(pilot, f"type in a terminal: distdbg attach --rank 3 {feed.address}")
        app_of(pilot).is_readonly = True
        await press(pilot, "a")
        await see(pilot, "attach: not with --readonly")
        app_of(pilot).is_readonly = False
        feed.change(link=FeedLink.OVER)
        await draw(pilot)
        await press(pilot, "a")
        await see(pilot, "there is no running process to attach to")

    drive(TopApp(feed, now=lambda: NOW), script)
