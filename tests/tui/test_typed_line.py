"""What is typed: filters, commands, and the palette."""

import pytest
from textual.pilot import Pilot

from distdbg.view.feed import Action
from distdbg.view.snapshot import ArmedBreakpoint
from tests.tui.framed import answered, enter, lines, made, settle, shown
from tests.tui.made_up import drive, row, text_of, until

pytestmark = pytest.mark.tui


# ----------------------------------------------------------------------------------- filter


def test_a_filter_is_applied_while_it_is_typed() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press(*"/bro")
        await settle(pilot)
        assert shown(app) == [2]
        await pilot.press("enter")
        await settle(pilot)
        assert "/bro" in lines(app)[2]
        await pilot.press("slash", *"cast", "escape")
        await settle(pilot)
        assert "/bro " in lines(app)[2]
        await pilot.press("escape")
        await settle(pilot)
        assert shown(app) == [0, 1, 2]

    drive(app, script)


@pytest.mark.slow
def test_a_filter_is_a_regular_expression_and_may_be_turned_round() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        for typed, ranks in (
            ("!broadcast", [0, 1]),
            ("DEAD|waiting", [0, 1]),
            ("!", [0, 1, 2]),
            ("zzz", []),
        ):
            await enter(pilot, app, "/", typed)
            assert shown(app) == ranks
            assert ("no match for /zzz" in text_of(app)) == (not ranks)

    drive(app, script)


def test_what_is_no_regular_expression_is_said_and_changes_nothing() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"a(", "enter")
        await settle(pilot)
        assert "not a regular expression: missing ), unterminated subpattern" in lines(app)[-1]
        assert app.line.kind == "/"
        await pilot.press("escape")
        await settle(pilot)
        assert shown(app) == [0, 1, 2]

    drive(app, script)


def test_only_faults_can_be_seen_and_none_is_said() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("F")
        await settle(pilot)
        assert shown(app) == [1]
        feed.change(ranks={0: row(0)})
        app.tick()
        await settle(pilot)
        assert "no faults" in text_of(app)

    drive(app, script)


# ----------------------------------------------------------------------------------- commands


def test_a_command_is_completed_and_recalled() -> None:
    app, feed = made()
    feed.change(armed=(ArmedBreakpoint(id=7, rule="rank=3"),))

    async def script(pilot: Pilot[None]) -> None:
        app.tick()
        await pilot.press("colon", "r", "e")
        await settle(pilot)
        assert lines(app)[-1].strip() == "resume  resume the deadlines"
        await pilot.press("tab", "enter")
        await answered(pilot, lambda: feed.done == [(Action.RESUME, {})])
        await pilot.press("colon", *"clear ", "tab", "tab", "enter")
        await answered(pilot, lambda: feed.done[1:] == [(Action.CLEAR, {"id": 7})])
        await pilot.press("colon", "up", "up")
        await settle(pilot)
        assert app.line.value == "resume"
        await pilot.press("down")
        assert app.line.value == "clear 7"
        await pilot.press("down")
        assert app.line.value == ""
        await pilot.press("p", "tab", "shift+tab", "ctrl+c")
        await settle(pilot)
        assert app.line.kind == ""
        assert app.is_running

    drive(app, script)


def test_while_a_command_is_typed_the_footer_shows_what_fits() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("colon")
        await settle(pilot)
        assert lines(app)[-1].split()[:2] == ["ranks", "groups"]
        await pilot.press(*"theme sol")
        await settle(pilot)
        assert lines(app)[-1].split() == ["solarized-dark", "solarized-light"]
        await pilot.press(*"xx")
        await settle(pilot)
        assert "no match" in lines(app)[-1]

    drive(app, script)


SAID = {
    "nonsense": "no command 'nonsense'",
    "p x": "pause takes no argument",
    "break": "expected a rule: rank=3,seq>=42",
    "clear three": "expected a number, not 'three'",
    "abort": "expected the reason: abort the data is wrong",
    "qit": "no command 'qit'; did you mean quit?",
    "theme blue": "no theme 'blue'; did you mean dark?",
    "filter (": "not a regular expression: missing ), unterminated subpattern at position 0",
    "r": "r: ranks, resume?",
}


@pytest.mark.slow
def test_a_command_that_cannot_be_done_says_why() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        for typed, said in SAID.items():
            await enter(pilot, app, ":", typed)
            assert lines(app)[-1].strip() == said
        assert feed.done == []

    drive(app, script)


def test_every_command_of_the_bar_changes_what_it_says() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        for text, *expected in (
            ("pause", Action.PAUSE, {}),
            ("resume", Action.RESUME, {}),
            ("break rank=3,seq>=42", Action.BREAK, {"rule": "rank=3,seq>=42"}),
            ("clear", Action.CLEAR, {}),
            ("continue 0-2", Action.CONTINUE, {"ranks": "0-2"}),
            ("continue", Action.CONTINUE, {"ranks": "all"}),
        ):
            app.do(text)
            await answered(pilot, lambda expected=expected: feed.done[-1:] == [tuple(expected)])
        app.do("filter broad")
        app.do("theme light")
        await settle(pilot)
        assert shown(app) == [2]
        assert app.theme == "textual-light"
        app.do("filter")
        app.do("theme")
        app.do("faults")
        await settle(pilot)
        assert shown(app) == [1]
        assert app.theme == "textual-dark"

    drive(app, script)


def test_the_palette_offers_the_commands() -> None:
    app, feed = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+p", *"resume")
        await until(pilot, lambda: "resume the deadlines" in text_of(app))
        await pilot.press("enter")
        await pilot.press("enter")
        await answered(pilot, lambda: feed.done == [(Action.RESUME, {})])
        names = [name for name, _, _ in app.commands.for_palette()]
        assert {"ranks", "abort", "stop", "break", "theme", "help", "quit"} <= set(names)

    drive(app, script)


def test_a_command_of_the_palette_that_needs_words_opens_the_line() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        run = {name: run for name, _, run in app.commands.for_palette()}
        run["break"]()
        await settle(pilot)
        assert (app.line.kind, app.line.value) == (":", "break ")

    drive(app, script)
