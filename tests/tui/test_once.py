"""One frame without a terminal."""

import re

import pytest

from distdbg.errors import UsageError
from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.once import draw_once, parse_size
from distdbg.tui.replay_feed import ReplayFeed
from distdbg.view.snapshot import FeedLink
from tests.tui.made_up import NOW, MadeUpFeed, job, row
from tests.tui.test_replay import killed

pytestmark = pytest.mark.tui


def test_a_frame_has_its_size_and_the_view_that_was_asked_for() -> None:
    app = TopApp(MadeUpFeed(job(row(0, RankState.DEAD), row(1))), now=lambda: NOW, view="timeline")
    frame = draw_once(app, size=(100, 20), settles_s=0.1)
    lines = frame.text.splitlines()
    assert len(lines) == 20
    assert max(map(len, lines)) <= 100
    assert "1 dead  1 running" in frame.text
    assert "follows" in frame.text
    assert frame.svg == ""


def test_colours_are_added_to_the_same_text() -> None:
    app = TopApp(MadeUpFeed(job(row(0), row(1))), now=lambda: NOW)
    frame = draw_once(app, size=(80, 24), picture=True)
    assert "\x1b[" in frame.ansi
    bare = re.sub("\x1b\\[[0-9;]*m", "", frame.ansi)
    assert [line.rstrip() for line in bare.splitlines()] == frame.text.splitlines()
    assert frame.svg.startswith("<svg")


def test_a_finished_run_is_drawn_with_its_verdict() -> None:
    feed = ReplayFeed(killed())
    frame = draw_once(TopApp(feed), size=(120, 30))
    assert "rank 2 was killed by SIGKILL" in frame.text
    assert "replay" in frame.text.splitlines()[0]
    feed.close()


def test_a_job_that_does_not_answer_is_drawn_as_such_after_a_while() -> None:
    feed = MadeUpFeed(job(link=FeedLink.JOINING))
    frame = draw_once(TopApp(feed, now=lambda: NOW), size=(80, 24), joins_s=0.05)
    assert "joining" in frame.text


@pytest.mark.parametrize("text", ["", "80", "80x", "x24", "10x24", "80x2", "99999x24", "80*24"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--size"):
        parse_size(text)


def test_a_size_is_columns_and_lines() -> None:
    assert parse_size("120x40") == (120, 40)
