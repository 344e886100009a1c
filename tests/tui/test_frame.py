"""The frame: keys, breadcrumbs, the mouse, sizes, what may be changed."""

import re

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.tui.head import foot_text, place_text
from distdbg.tui.keys import KeyHint, fit, key_name, keys_of
from distdbg.view.feed import Action
from distdbg.view.snapshot import FeedLink, HostRow, Snapshot
from tests.tui.framed import Detail, answered, enter, lines, made, settle, shown
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row, text_of

pytestmark = pytest.mark.tui


# ----------------------------------------------------------------------------------- the lines


def test_the_head_says_which_job_and_the_foot_how_to_go_on() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await settle(pilot)
        head, state, place, *_, foot = lines(app)
        assert head.split("  ") == [" 20261122-071611-63d104", "3 ranks", "3 min 5 s", "live"]
        assert state.strip() == "1 dead  1 running  1 waiting"
        assert place.split()[:3] == ["ranks", "enter", "open"]
        assert "/ filter  : command" in place
        assert foot.strip().startswith("ranks")
        assert (
            foot
            == " ranks groups ops timeline waits findings stacks log breakpoints ? help  q quit"
        )

    drive(app, script, (80, 24))


BECOMES = [
        ({"link": FeedLink.LOST, "at": NOW - 12, "link_why": "the agent of n14 does not answer"},
         "lost for 12 s: the agent of n14 does not answer"),
        ({"link": FeedLink.OVER, "link_why": "all ranks ended"}, "over: all ranks ended"),
        ({"is_paused": True, "held_by": ("the user", "rank 3")},
         "live  the clock is paused (the user, rank 3)"),
        ({"hosts": (HostRow(host="n14"), HostRow(host="n15", is_lost=True))},
         "host n15 does not answer"),
        ({"lines": ("rank 3 never called all_reduce #42",)}, "rank 3 never called all_reduce #42"),
        ({"abort": "rank 1 is dead\nmore"}, "aborted: rank 1 is dead"),
        ({"run": "evil\x1b[2J\nname"}, "evil"),
]  # fmt: skip


def test_what_becomes_of_a_job_is_said_in_the_head() -> None:
    app, feed = made()
    usual = feed.snapshot

    async def script(pilot: Pilot[None]) -> None:
        for fields, words in BECOMES:
            feed.snapshot = usual
            feed.change(**fields)
            app.tick()
            await settle(pilot)
            assert words in "\n".join(lines(app)[:2])
            assert "\x1b" not in text_of(app)

    drive(app, script)


def test_a_job_of_which_nothing_was_heard_is_no_error() -> None:
    app, _ = made(Snapshot())

    async def script(pilot: Pilot[None]) -> None:
        await settle(pilot)
        assert "made up  joining" in lines(app)[0]
        assert "waiting for the first answer" in lines(app)[1]

    drive(app, script)


def test_keys_that_have_no_room_are_left_out_from_the_end() -> None:
    words = [("a", "attach"), ("/", "filter"), ("?", "help")]
    assert [fit(words, width) for width in (0, 7, 8, 17, 18, 19, 25, 26)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        2,
        3,
    ]
    keys = [
        KeyHint("a", "attach", "", "attach", "a"),
        KeyHint("/", "filter", "", "filter", "slash"),
    ]
    assert (
        place_text(["ranks", "rank 3"], [], keys, 34).plain == "ranks > rank 3            a attach"
    )
    assert place_text(["ranks", "rank 3"], [], keys, 20).plain.strip() == "ranks > rank 3"
    assert place_text(["ranks"], ["/x"], [], 40).plain.rstrip() == "ranks   /x"


def test_the_footer_of_a_narrow_terminal_has_the_keys_of_the_views_alone() -> None:
    views = [("r", "ranks"), ("g", "groups"), ("x", "by host")]
    keys = [KeyHint("?", "help", "", "help", "?"), KeyHint("q", "leave", "", "quit", "q")]
    assert foot_text(views, "ranks", keys, 60).plain.split() == [
        "ranks", "groups", "x", "by", "host", "?", "help", "q", "leave",
    ]  # fmt: skip
    assert foot_text(views, "groups", keys, 24).plain.split() == ["r", "groups", "x", "?", "help"]


def test_keys_are_called_as_on_the_keyboard() -> None:
    assert key_name("escape,q") == "esc  q"
    assert key_name("ctrl+c") == "^c"
    assert key_name("left_square_bracket,space") == "[  space"
    [key] = keys_of([("plus", "zoom_in(2)", "show less time, but closer")])
    assert (key.name, key.word, key.about) == ("+", "zoom in", "show less time, but closer")


# ----------------------------------------------------------------------------------- getting around


def test_escape_closes_what_was_opened_last() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("F")
        app.open(Detail())
        await settle(pilot)
        await pilot.press("question_mark")
        await settle(pilot)
        assert "ranks > rank 1 > help   faults only" in lines(app)[2]
        await enter(pilot, app, "/", "esc")
        await settle(pilot)
        assert "ranks > rank 1 > help   /esc" in lines(app)[2]
        for after in (
            "ranks > rank 1 > help   faults only",
            "ranks > rank 1   faults only",
            "ranks   faults only",
            "ranks  ",
            "ranks  ",
        ):
            await pilot.press("escape")
            await settle(pilot)
            assert lines(app)[2].strip().startswith(after)

    drive(app, script)


def test_breadcrumbs_and_keys_can_be_clicked() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        app.open(Detail())
        await pilot.press("question_mark")
        await settle(pilot)
        await pilot.click(offset=(10, 2))
        await settle(pilot)
        assert [page.crumb for page in app.trail] == ["ranks", "rank 1"]
        await pilot.click(offset=(2, 2))
        await settle(pilot)
        assert [page.crumb for page in app.trail] == ["ranks"]
        at = lines(app)[2].index("F faults")
        await pilot.click(offset=(at, 2))
        await settle(pilot)
        assert shown(app) == [1]
        at = lines(app)[29].index("? help")
        await pilot.click(offset=(at + 3, 29))
        await settle(pilot)
        assert app.trail[-1].crumb == "help"
        await pilot.click(offset=(2, 29))
        await settle(pilot)
        assert [page.crumb for page in app.trail] == ["ranks"]

    drive(app, script)


def test_a_view_is_found_as_it_was_left() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("down", "greater_than_sign")
        await pilot.press("question_mark")
        await settle(pilot)
        await pilot.press("r")
        await settle(pilot)
        table = app.trail[-1].query_one("RowTable")
        assert (table.sorted_by, table.cursor) == (1, 1)  # type: ignore[attr-defined]  # a RowTable
        assert app.focused is table

    drive(app, script)


def test_the_help_has_every_key_and_command_that_is_there() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await settle(pilot)
        text = "\n".join(lines(app)[3:])
        for about in (
            "what each rank does", "quit; the job keeps running", "sort by the next column",
            "cancel", "pause all deadlines of the job", "break RULE", "abort WHY",
        ):  # fmt: skip
            assert about in text
        assert text.count("everywhere") == 1

    drive(app, script, (100, 80))


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["colon", *"quit", "enter"]])
def test_there_are_three_ways_to_leave_and_all_say_that_it_went_well(keys: list[str]) -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        await settle(pilot)

    drive(app, script)
    assert app.return_code == 0
    assert feed.done == []


# ----------------------------------------------------------------------------------- changing the job


def test_the_clock_of_the_job_is_stopped_and_let_run_by_one_key() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("p")
        await answered(pilot, lambda: feed.done == [(Action.PAUSE, {})])
        assert lines(app)[-1].strip() == "pause: done"
        feed.change(is_paused=True)
        app.tick()
        await settle(pilot)
        assert "p resume" in lines(app)[2]
        await pilot.press("p")
        await answered(pilot, lambda: feed.done[1:] == [(Action.RESUME, {})])

    drive(app, script)


def test_a_refusal_is_said() -> None:
    app, feed = made()
    feed.refuses = "the job is over"

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("p")
        await answered(pilot, lambda: "the job is over" in text_of(app))

    drive(app, script)


def test_a_job_is_ended_only_by_a_yes() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        for typed, key, done in (
            ("stop", "n", []),
            ("stop", "escape", []),
            ("stop", "q", []),
            ("abort too slow", "enter", []),
            ("stop", "y", [(Action.STOP, {})]),
            ("abort too slow", "y", [(Action.ABORT, {"what": "too slow"})]),
        ):
            feed.done.clear()
            await enter(pilot, app, ":", typed)
            assert lines(app)[-1].rstrip().endswith("y yes  n no")
            assert feed.done == []
            await pilot.press(key)
            await answered(pilot, lambda done=done: feed.done == done)
            assert app.is_running
            assert app.focused is app.trail[-1].first_focus()
            assert "y yes" not in text_of(app)

    drive(app, script)


def test_readonly_has_no_key_and_no_command_that_changes_the_job() -> None:
    app, feed = made(readonly=True)

    async def script(pilot: Pilot[None]) -> None:
        assert "p pause" not in text_of(app)
        assert "read only" in lines(app)[2]
        await pilot.press("p")
        await settle(pilot)
        assert lines(app)[-1].strip() == "pause: not with --readonly"
        await pilot.press("b")
        await settle(pilot)
        assert "new" not in lines(app)[2]
        names = {name for name, _, _ in app.commands.for_palette()}
        changing = {"pause", "resume", "break", "clear", "continue", "abort", "stop"}
        assert names & changing == set()
        for name in sorted(changing):
            app.do(f"{name} x" if name in ("break", "abort") else name)
            await settle(pilot)
            assert lines(app)[-1].strip() == f"{name}: not with --readonly"
        app.change(Action.STOP)
        await pilot.press("question_mark")
        await settle(pilot)
        assert "deadlines" not in text_of(app)
        assert "a new breakpoint" not in text_of(app)
        assert "debugger" not in text_of(app).replace("ranks in the debugger", "")
        assert feed.done == []

    drive(app, script, (100, 80))


def test_a_replay_cannot_be_changed_either() -> None:
    app, feed = made()
    feed.can_change = False
    feed.times = (NOW - 100, NOW)
    app = TopApp(feed, now=lambda: NOW + 500, environ={})

    async def script(pilot: Pilot[None]) -> None:
        await settle(pilot)
        assert "3 min" in lines(app)[0]
        assert "read only" not in lines(app)[2]
        app.do("pause")
        await settle(pilot)
        assert "pause: a replay is over" in lines(app)[-1]

    drive(app, script)


# ----------------------------------------------------------------------------------- sizes, colours


SIZES = [(200, 60), (80, 24), (79, 24), (60, 20), (40, 10), (20, 5), (10, 2), (1, 1), (80, 24)]


@pytest.mark.slow
def test_it_is_drawn_on_a_terminal_of_any_size() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert all(len(line) <= size[0] for line in lines(app))
            is_small = size[0] < 80 or size[1] < 24
            if size[0] >= 40:
                said = f"{size[0]}x{size[1]} is small: 80x24 shows more"
                assert (said in text_of(app)) == is_small
                assert shown(app)[:1] == [0] or size[1] < 12
            if size in ((20, 5), (1, 1)):
                await pilot.press("question_mark", "colon", "x", "enter", "slash", "escape", "r")
                await settle(pilot)
        assert shown(app) == [0, 1, 2]

    drive(app, script)


def test_it_begins_on_a_terminal_of_any_size() -> None:
    for size in ((1, 1), (30, 4)):
        app, _ = made()

        async def script(pilot: Pilot[None], app: TopApp = app) -> None:
            await pilot.resize_terminal(90, 30)
            await settle(pilot)
            assert shown(app) == [0, 1, 2]

        drive(app, script, size)


def test_a_light_terminal_gets_a_light_theme() -> None:
    feed = MadeUpFeed(job(row(0)))
    assert TopApp(feed, environ={"COLORFGBG": "0;15"}).theme == "textual-light"
    assert TopApp(feed, environ={"COLORFGBG": "15;0"}).theme == "textual-dark"
    assert TopApp(feed, environ={}, theme="nord").theme == "nord"


def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await settle(pilot)
        segments = [
            segment for strip in app.screen._compositor.render_strips() for segment in strip
        ]
        styles = [segment.style for segment in segments if segment.style is not None]
        assert all(style.color is None or style.color.is_default for style in styles)
        assert all(style.bgcolor is None or style.bgcolor.is_default for style in styles)
        [cursor] = [s for s in segments if s.text.startswith("    0 ") and s.style is not None]
        assert cursor.style is not None
        assert cursor.style.reverse
        dead = next(s for s in segments if s.text.startswith("dead"))
        assert dead.style is not None
        assert dead.style.bold

    drive(app, script)


def test_a_job_that_is_over_cannot_be_changed_and_no_key_offers_it() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        feed.change(link=FeedLink.OVER)
        app.tick()
        await settle(pilot)
        assert not {"a attach", "p pause"} & set(re.split("  +", lines(app)[2]))
        await pilot.press("p")
        await settle(pilot)
        assert lines(app)[-1].strip() == "pause: the job is over"
        assert feed.done == []

    drive(app, script)
