"""Pictures of the dashboard in its most important states, compared with those that were looked at.

`DISTDBG_UPDATE_SNAPSHOTS=1 pytest tests/tui/test_snapshots.py` rewrites them. They are of one version of
textual, which is in snapshots/textual.txt; with another one nothing is compared.
"""

import os
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from distdbg.tui.once import lines_of, plain_picture
from distdbg.view.snapshot import FeedLink
from tests.tui import example_job
from tests.tui.made_up import NOW, MadeUpFeed, drive

pytestmark = pytest.mark.tui

FOLDER = Path(__file__).with_name("snapshots")
VERSION = FOLDER / "textual.txt"
IS_UPDATE = bool(os.environ.get("DISTDBG_UPDATE_SNAPSHOTS"))

Script = Callable[[Pilot[None], TopApp], Awaitable[None]]


async def look(pilot: Pilot[None], app: TopApp) -> None:
    """Nothing but what is there."""


async def lose(pilot: Pilot[None], app: TopApp) -> None:
    assert isinstance(app.feed, MadeUpFeed)
    app.feed.change(link=FeedLink.LOST, at=NOW - 12, link_why="the agent of n14 does not answer")
    app.tick()


async def type_a_command(pilot: Pilot[None], app: TopApp) -> None:
    app.line.cursor_blink = False
    await pilot.press("colon", *"break ra")


async def ask_first(pilot: Pilot[None], app: TopApp) -> None:
    app.do("stop")


async def narrow(pilot: Pilot[None], app: TopApp) -> None:
    app.do("filter waiting")
    await pilot.press("down", "greater_than_sign")


async def helped(pilot: Pilot[None], app: TopApp) -> None:
    await pilot.press("question_mark")


#: Name, size, theme, the view, what is done there.
STATES: tuple[tuple[str, tuple[int, int], str, str, Script], ...] = (
    ("ranks", (80, 24), "textual-dark", "ranks", look),
    ("ranks-light", (120, 24), "textual-light", "ranks", narrow),
    ("ranks-lost", (80, 24), "textual-dark", "ranks", lose),
    ("command", (80, 24), "textual-dark", "ranks", type_a_command),
    ("question", (80, 24), "textual-light", "groups", ask_first),
    ("help", (100, 30), "textual-dark", "breakpoints", helped),
    ("small", (50, 14), "textual-dark", "ranks", look),
    ("groups", (80, 24), "textual-dark", "groups", look),
    ("ops", (100, 24), "textual-dark", "ops", look),
    ("timeline", (100, 24), "textual-dark", "timeline", look),
    ("waits", (80, 24), "textual-dark", "waits", look),
    ("findings", (100, 30), "textual-dark", "findings", look),
    ("stacks", (80, 24), "textual-dark", "stacks", look),
    ("log", (80, 24), "textual-dark", "log", look),
    ("breakpoints", (80, 24), "textual-dark", "breakpoints", look),
)


def job_with_bars() -> MadeUpFeed:
    feed = example_job.feed()
    for rank in range(8):
        feed.all_bars[rank] = [
            example_job.bar(
                n, n, issued=NOW - 35 + n + rank * 0.1, started=NOW - 34 + n, ended=NOW - 33.8 + n
            )
            for n in range(4)
        ]
        if rank < 6 and rank != 3:
            waits = example_job.bar(42, 42, issued=NOW - 31, started=None, ended=None)
            feed.all_bars[rank].append(waits)
    return feed


def draw(size: tuple[int, int], theme: str, view: str, script: Script) -> str:
    app = TopApp(job_with_bars(), now=lambda: NOW, view=view, theme=theme, environ={})
    pictures: list[str] = []

    async def run(pilot: Pilot[None]) -> None:
        await pilot.pause()
        app.clear_message()
        await script(pilot, app)
        await pilot.pause()
        if script is not ask_first:
            app.clear_message()
        app.draw()
        await pilot.pause()
        pictures.append(plain_picture(app.export_screenshot(title="distdbg top")))

    drive(app, run, size)
    return pictures[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "theme", "view", "script"),
    STATES,
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_picture_is_as_it_was(
    name: str, size: tuple[int, int], theme: str, view: str, script: Script
) -> None:
    path = FOLDER / f"{name}.svg"
    if not IS_UPDATE and version("textual") != VERSION.read_text().strip():
        pytest.skip(f"the pictures are of textual {VERSION.read_text().strip()}")
    found = draw(size, theme, view, script)
    if IS_UPDATE:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
        VERSION.write_text(version("textual") + "\n")
        return
    if found != (expected := path.read_text(encoding="utf-8")):
        pytest.fail(difference(expected, found), pytrace=False)


def difference(expected: str, found: str) -> str:
    """The first line that is another one: of the text, or else of the picture."""
    for what, old, new in (
        ("line", lines_of(expected), lines_of(found)),
        ("line of the picture, the text is the same,", expected.split("\n"), found.split("\n")),
    ):
        for at in range(max(len(old), len(new))):
            before = old[at] if at < len(old) else "(no more)"
            after = new[at] if at < len(new) else "(no more)"
            if before != after:
                return f"{what} {at} was\n  {before}\nand is\n  {after}"
    return "the same"


def test_there_are_few_of_them_and_each_is_used() -> None:
    assert len(STATES) <= 15
    assert {path.stem for path in FOLDER.glob("*.svg")} == {state[0] for state in STATES}


def test_a_difference_is_told_by_the_line_that_a_person_sees() -> None:
    picture = draw((60, 12), "textual-dark", "ranks", look)
    assert "8 ranks on 2 hosts" in " ".join(lines_of(picture))
    assert "https" not in picture.replace("http://www.w3.org", "").replace(
        "https://www.textualize", ""
    )
    other = picture.replace("8&#160;ranks", "9&#160;ranks")
    assert "8 ranks on 2" in difference(picture, other).splitlines()[1]
    assert "9 ranks on 2" in difference(picture, other).splitlines()[3]
    assert "the text is the same" in difference(picture, picture.replace("fill: #", "fill: %"))
