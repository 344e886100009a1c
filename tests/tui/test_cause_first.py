"""The cause is red, marked and first; its victims are dim yellow; the rest is quiet."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.tui.cells import Tone
from distdbg.tui.commands import CommandError
from distdbg.tui.table import RowTable
from tests.tui import example_job
from tests.tui.eyes import draw, press, see
from tests.tui.framed import enter, lines, made, shown
from tests.tui.made_up import NOW, MadeUpFeed, drive, text_of

pytestmark = pytest.mark.tui

LONG = "dataloader_of_the_team.py:1210 (read_the_next_shard_of_all)"


def hang() -> MadeUpFeed:
    """The example with a long place, and with nothing about a GPU."""
    snapshot = example_job.snapshot()
    rows = dict(snapshot.ranks)
    rows[3] = replace(rows[3], site=LONG)
    return MadeUpFeed(replace(snapshot, ranks=rows))


def test_the_row_of_the_cause_is_first_and_marked_and_its_line_is_whole() -> None:
    app = TopApp(hang(), now=lambda: NOW, environ={})

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, LONG)
        first = screen.splitlines()[4]
        assert first.split()[:3] == ["!", "3", "running"]
        assert "gpu" not in screen.splitlines()[3]
        table = app.query_one(RowTable)
        cells = {rank: app.trail[-1].cells(rank) for rank in range(8)}  # type: ignore[attr-defined]  # a table
        assert cells[3][2].tone is Tone.FAULT
        assert {cells[rank][2].tone for rank in example_job.WAITERS} == {Tone.VICTIM}
        assert sum(cells[rank][2].tone is Tone.FAULT for rank in range(8)) == 1
        assert table.cursor == 3

    drive(app, script, size=(120, 24))


def test_faults_only_leaves_all_whom_the_headline_names() -> None:
    app = TopApp(hang(), now=lambda: NOW, environ={})

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "running")
        await press(pilot, "F")
        screen = await see(pilot, "faults only", no=("no faults",))
        ranks = [line.replace("!", " ").split()[0] for line in screen.splitlines()[4:11]]
        assert ranks == ["3", "0", "1", "2", "4", "5", "7"]
        for key in "gotw":
            await press(pilot, key)
            await see(pilot, "faults only", no=("no faults",))

    drive(app, script)


def test_the_cursor_is_not_brighter_than_the_cause() -> None:
    app = TopApp(hang(), now=lambda: NOW, environ={}, theme="textual-dark")

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, LONG)
        table = app.query_one(RowTable)
        under, plain = table._style("cursor", Tone.FAULT), table._style("", Tone.FAULT)
        assert under.color == plain.color
        back = under.bgcolor.get_truecolor()  # type: ignore[union-attr]  # the theme has one
        assert max(back) < 128

    drive(app, script)


def test_the_headline_has_the_time_and_the_state_of_its_rows() -> None:
    feed = hang()
    stall = example_job.finding(
        FindingKind.STALL, Severity.NOTE, "ranks 0-2,4-5 wait for rank 3 for 7.0 s",
        ranks=(3,), victims=example_job.WAITERS,
    )  # fmt: skip
    feed.change(
        lines=("ranks 0-2,4-5 wait for rank 3 for 7.0 s",), verdict=example_job.verdict(stall)
    )
    app = TopApp(feed, now=lambda: NOW, environ={})

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(
            pilot,
            "rank 3 is running at ",
            "; ranks 0-2,4-5 have waited 31 s for it in all_reduce",
            no=("7.0 s",),
        )
        row = next(line for line in screen.splitlines()[4:] if line.split()[:2] == ["0", "waiting"])
        assert "31 s" in row

    drive(app, script, size=(220, 24))


def test_nothing_is_drawn_before_all_ranks_were_read() -> None:
    from distdbg.view.snapshot import FeedLink

    feed = hang()
    feed.change(link=FeedLink.JOINING, link_why="5 of 8 ranks were read")
    app = TopApp(feed, now=lambda: NOW, environ={})

    async def script(pilot: Pilot[None]) -> None:
        screen = await see(pilot, "5 of 8 ranks were read")
        assert "waiting" not in screen.replace("waiting for the first answer", "")
        feed.change(link=FeedLink.LIVE, link_why="")
        await draw(pilot)
        await see(pilot, LONG)

    drive(app, script)


def test_ranks_that_are_missing_are_marked_in_the_head() -> None:
    feed = hang()
    feed.change(world_size=12)

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "8 of 12 ranks on 2 hosts")

    drive(TopApp(feed, now=lambda: NOW, environ={}), script)


@pytest.mark.parametrize("typed", ["sorp", "stopp", "abrot", "abord", "exex"])
def test_no_word_that_ends_the_job_is_proposed(typed: str) -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        try:
            app.commands.do(typed)
        except CommandError as error:
            said = str(error)
        assert not any(word in said for word in ("abort?", "stop?", "break?", "clear?"))

    drive(app, script)


def test_tables_are_sorted_by_a_command_and_a_key() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await enter(pilot, app, ":", "sort -rank")
        assert shown(app) == [2, 1, 0]
        await enter(pilot, app, ":", "sort")
        assert shown(app) == [0, 1, 2]
        await press(pilot, "S")
        assert "sorted by rank" in lines(app)[-1]
        await enter(pilot, app, ":", "sort nonsense")
        assert "no column 'nonsense'" in lines(app)[-1]

    drive(app, script)


def test_a_message_goes_away_at_the_next_key() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        app.show_message("something was done")
        await pilot.pause()
        assert "something was done" in lines(app)[-1]
        await press(pilot, "down")
        assert "something was done" not in text_of(app)
        assert "? help" in lines(app)[-1]

    drive(app, script)


def test_attaching_where_it_is_not_allowed_says_how_to_start_the_job() -> None:
    feed = example_job.feed()
    feed.change(is_debuggable=False)

    async def script(pilot: Pilot[None]) -> None:
        await see(pilot, "waiting")
        await press(pilot, "a")
        await see(pilot, "`distdbg run --debuggable`", ":break rank=3")

    drive(TopApp(feed, now=lambda: NOW, environ={}), script)


def test_a_rank_that_is_asleep_accuses_nobody_without_a_verdict() -> None:
    from distdbg.tui.cells import is_fault, tone_of

    for state in (RankState.RUNNING, RankState.WAITING):
        assert tone_of(state) is Tone.PLAIN
    assert is_fault(RankState.DEAD)
    assert is_fault(RankState.STOPPED)
