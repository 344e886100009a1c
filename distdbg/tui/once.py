"""One frame of the dashboard, for scripts and screenshots: no terminal is needed.

    draw_once(TopApp(feed, view="waits"), size=(120, 40), is_ready=...)     -> Frame
    frame.text, frame.ansi, frame.svg

The app runs without a screen until its feed has something to show, and is drawn then.
"""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from distdbg.errors import UsageError
from distdbg.tui.replayed import TimedFeed
from distdbg.view.snapshot import FeedLink, Snapshot

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from distdbg.tui.app import TopApp

#: How long a feed may take to hear of its job.
JOINS_S: Final = 5.0
#: And then for what only the view wants of it: it has been asked, and the answer is on its way.
SETTLES_S: Final = 1.2
#: How long what the page has asked for by itself may take: stacks of all ranks.
ANSWERS_S: Final = 10.0
#: How long the verdict of a replay may take; that of a very large run does.
_VERDICT_S: Final = 20.0
_POLL_S: Final = 0.02
_MIN: Final = (20, 6)
_MAX: Final = (1000, 500)


_FONT = re.compile(r"\s*@font-face \{.*?\}\s*", re.DOTALL)
_ID = re.compile(r"terminal-\d+-")
_TEXT = re.compile(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    text: str
    """Lines without colours, and without blanks at their ends."""
    ansi: str
    """With the colours of the theme, for a terminal."""
    svg: str
    """A picture; '' when none was asked for."""


def parse_size(text: str) -> tuple[int, int]:
    """'120x40' as columns and lines; UsageError says what is wrong with it."""
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text.strip())
    if found is None:
        raise UsageError(f"--size {text}: expected columns and lines", hint="--size 120x40")
    size = int(found[1]), int(found[2])
    for part, least, most in zip(size, _MIN, _MAX, strict=True):
        if not least <= part <= most:
            raise UsageError(f"--size {text}: from {_MIN[0]}x{_MIN[1]} to {_MAX[0]}x{_MAX[1]}")
    return size


def draw_once(
    app: TopApp,
    *,
    size: tuple[int, int],
    picture: bool = False,
    joins_s: float = JOINS_S,
    settles_s: float = SETTLES_S,
) -> ScreenFrame:
    """Run the app without a screen until it shows something; never longer than a few seconds."""
    frames: list[ScreenFrame] = []

    async def script(pilot: Pilot[object]) -> None:
        try:
            await _until(lambda: is_joined(app.feed.latest()), joins_s)
            is_replay = app.feed.span() is not None
            await _until(_Settled(app), _VERDICT_S if is_replay else settles_s)
            app.tick()
            await pilot.pause()
            await _until(lambda: not any(page.waits_for_answer for page in app.trail), ANSWERS_S)
            app.clear_message()
            app.draw()
            await pilot.pause()
            frames.append(_frame(app, picture=picture))
        finally:
            app.exit()

    asyncio.run(app.run_async(headless=True, size=size, auto_pilot=script))
    if not frames:
        raise UsageError("the frame could not be drawn")
    return frames[0]


def is_joined(snapshot: Snapshot) -> bool:
    """Whether there is anything to show, or never will be."""
    return snapshot.link is not FeedLink.JOINING


class _Settled:
    """Whether a feed has answered what the view wanted of it."""

    def __init__(self, app: TopApp) -> None:
        self._app = app
        self._first = app.feed.latest()
        self._last = self._first
        self._changes = 0
        self._topics = app.trail[-1].topics if app.trail else frozenset()

    def __call__(self) -> bool:
        snapshot, feed = self._app.feed.latest(), self._app.feed
        if snapshot is not self._last:
            self._last = snapshot
            self._changes += 1
        if isinstance(feed, TimedFeed):
            return feed.is_settled
        return self._changes >= 2 or not self._topics


async def _until(is_so: Callable[[], bool], limit_s: float) -> None:
    due = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < due:  # noqa: ASYNC110  # a feed never calls: it is asked
        await asyncio.sleep(_POLL_S)


def _frame(app: TopApp, *, picture: bool) -> ScreenFrame:
    """Take the frame as `App.export_screenshot` does; textual has no public name for a screen's lines."""
    from rich.color import ColorSystem

    strips = app.screen._compositor.render_strips()
    plain = "".join(f"{strip.text.rstrip()}\n" for strip in strips)
    coloured = "".join(
        "".join(
            style.render(text, color_system=ColorSystem.TRUECOLOR) if style else text
            for text, style, _ in strip
        )
        + "\n"
        for strip in strips
    )
    svg = ""
    if picture:
        svg = plain_picture(app.export_screenshot(title=f"distdbg top {app.feed.title}"))
    return ScreenFrame(plain, coloured, svg)


def plain_picture(svg: str) -> str:
    """What `App.export_screenshot` gives, without foreign fonts and without a number in each name."""
    text = _FONT.sub("\n", svg).replace("Fira Code", "DejaVu Sans Mono")
    return (
        "\n".join(line.rstrip() for line in _ID.sub("t-", text).splitlines() if line.strip()) + "\n"
    )


def lines_of(svg: str) -> list[str]:
    """The text of a picture, line by line, from the top; what is of one line stands in its order."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in _TEXT.findall(svg):
        lines.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return [
        "".join(text for _, text in sorted(parts)).rstrip() for _, parts in sorted(lines.items())
    ]
