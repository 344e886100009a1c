"""What of ours fails becomes a line and an entry of a private file; the dashboard goes on."""

import stat
import threading
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from textual.binding import BindingType
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget

from distdbg.errors import InternalError, UsageError
from distdbg.tui.app import TopApp
from distdbg.tui.targets import RankTarget
from distdbg.tui.trouble import TroubleLog, TroublePage
from distdbg.tui.view import Page
from distdbg.view.feed import Action
from distdbg.view.snapshot import Snapshot
from tests.tui.made_up import NOW, MadeUpFeed, drive, job, row, text_of, until

pytestmark = pytest.mark.tui


class Sheet(Widget):
    """Cannot be drawn when it is told so."""

    breaks = False

    def render_line(self, y: int) -> Strip:
        if self.breaks:
            raise LookupError("no such line")
        return Strip.blank(self.size.width)


class BadPage(Page):
    """Fails where it is told to."""

    BINDINGS: ClassVar[list[BindingType]] = [("x", "fail", "fail")]
    crumb = "bad"  # type: ignore[assignment]  # a property elsewhere

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.can_focus = True

    def fail_in(self, where: str) -> None:
        if self.where == where:
            raise LookupError(f"in {where}\nand more")

    def compose(self) -> Any:
        self.fail_in("compose")
        sheet = Sheet()
        sheet.breaks = self.where == "paint"
        yield sheet

    def draw(self, snapshot: Snapshot, now: float) -> None:
        self.fail_in("draw")

    def narrow(self, only: Any, only_faults: bool) -> None:
        self.fail_in("narrow")

    def target(self) -> object:
        self.fail_in("target")
        return RankTarget(0)

    def action_fail(self) -> None:
        self.fail_in("action")

    def on_click(self) -> None:
        self.fail_in("click")


def made() -> tuple[TopApp, MadeUpFeed]:
    feed = MadeUpFeed(job(row(0), row(1)))
    return TopApp(feed, now=lambda: NOW, environ={}), feed


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", ["compose", "draw", "narrow", "paint", "action", "click", "target", "detail"]
)
def test_a_page_that_fails_is_a_line_and_the_rest_goes_on(where: str) -> None:
    app, feed = made()
    feed.address = "somewhere"

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        app.open(BadPage(where))
        await pilot.pause()
        if where == "action":
            await pilot.press("x")
        elif where == "click":
            await pilot.click(BadPage)
        elif where == "target":
            app.action_open()
        elif where == "detail":
            with patch("distdbg.tui.details.RankPage", side_effect=LookupError("no such rank")):
                app.action_open()
        await until(pilot, lambda: "failed: LookupError: " in text_of(app))
        assert "Traceback" not in text_of(app)
        path = app.troubles.path
        assert path is not None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "Traceback (most recent call last)" in path.read_text()
        await pilot.press("escape")
        await pilot.press("r")
        await until(pilot, lambda: "all_reduce #42" in text_of(app))
        feed.change(run="still-alive")
        app.tick()
        await until(pilot, lambda: "still-alive" in text_of(app))

    drive(app, script)


def test_a_view_that_has_failed_is_made_anew() -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        view = app.trail[0]
        app.page_failed(LookupError("once"))
        await until(pilot, lambda: isinstance(app.trail[-1], TroublePage))
        await pilot.pause()
        assert "ranks failed: LookupError: once" in text_of(app)
        assert "everything else keeps working" in text_of(app)
        await pilot.press("r")
        await until(pilot, lambda: "all_reduce #42" in text_of(app))
        assert app.trail[0] is not view

    drive(app, script)


def test_a_feed_that_fails_is_a_line_once() -> None:
    app, feed = made()

    def latest() -> Snapshot:
        raise ZeroDivisionError("in the feed")

    async def script(pilot: Pilot[None]) -> None:
        feed.latest = latest  # type: ignore[method-assign]  # as a bug would
        for _ in range(3):
            app.tick()
        await pilot.pause()
        assert "the feed failed: ZeroDivisionError: in the feed; see " in text_of(app)
        assert app.troubles.path is not None
        assert app.troubles.path.read_text().count("Traceback") == 1

    drive(app, script)


def test_what_a_thread_raises_is_told_and_a_refusal_is_no_trouble() -> None:
    app, feed = made()
    raised: list[Exception] = [UsageError("not now\n  details"), LookupError("a bug")]

    def do(action: Action, **words: object) -> str:
        raise raised.pop(0)

    async def script(pilot: Pilot[None]) -> None:
        feed.do = do  # type: ignore[method-assign]  # as a bug would
        app.change(Action.PAUSE)
        await until(pilot, lambda: "not now" in text_of(app))
        assert app.troubles.path is None
        app.change(Action.PAUSE)
        await until(pilot, lambda: "pause failed: LookupError: a bug" in text_of(app))

    drive(app, script)


def test_of_several_questions_of_a_page_the_newest_counts() -> None:
    app, _ = made()
    gates = [threading.Event(), threading.Event()]
    answers: list[int] = []

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        page = app.trail[-1]
        for number, gate in enumerate(gates):
            page.ask_feed(
                lambda gate=gate, number=number: gate.wait(120) and number, answers.append
            )
        gates[1].set()
        await until(pilot, lambda: answers == [1])
        gates[0].set()
        await until(
            pilot, lambda: not any(t.name == "distdbg-top-ask" for t in threading.enumerate())
        )
        await pilot.pause()
        assert answers == [1]

    drive(app, script)


def test_who_leaves_does_not_wait_for_an_answer() -> None:
    app, _ = made()
    gate = threading.Event()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        app.trail[-1].ask_feed(lambda: gate.wait(120), lambda answer: None)
        await pilot.press("q")

    drive(app, script)

    gate.set()


def test_a_frame_that_fails_itself_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    app, _ = made()

    async def script(pilot: Pilot[None]) -> None:
        await pilot.pause()
        app._handle_exception(LookupError("the frame"))

    with pytest.raises(LookupError, match="the frame"):
        drive(app, script)
    assert app.return_code == InternalError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("the dashboard failed: LookupError: the frame more is in ")
    assert said.endswith("the job keeps running")


def test_a_file_that_cannot_be_written_is_no_further_trouble(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    log = TroubleLog()
    assert log.note("it", LookupError("x\x1b[2J")) == "it: LookupError: x\\x1b[2J"
    assert log.path is None
