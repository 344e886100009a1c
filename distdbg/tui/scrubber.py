"""Scrubber: the time line under the page of a replay: position, errors, play and seek.

▶ 1x  3:05 min ━━━━━━━━●────✗──────✗─  4:12 min   rank 2: OpTimeout
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from distdbg.tui.cells import one_line, shorten
from distdbg.tui.replayed import ReplayMark, TimedFeed
from distdbg.tui.time_axis import moment
from distdbg.tui.view import Dashboard

_FRAME_S: Final = 0.1
#: A step of a feed that does not know when things happen.
_STEPS: Final = 200
_MIN_SPEED: Final = 1e-4
_MAX_SPEED: Final = 1e4
#: Key, what `Scrubber.move` does, by how much, the word for the footer, and the sentence for the help.
SCRUB_KEYS: Final = (
    ("right_square_bracket", "step", 1, "step", "replay: to the next op that begins or ends"),
    ("left_square_bracket", "step", -1, "step back", "replay: one op back"),
    ("right_curly_bracket", "step", 10, "ten steps", "replay: ten ops further"),
    ("left_curly_bracket", "step", -10, "ten back", "replay: ten ops back"),
    ("right_parenthesis", "jump", 1, "next error", "replay: to the next error"),
    ("left_parenthesis", "jump", -1, "last error", "replay: to the error before"),
    ("space", "play", 0, "play", "replay: play or pause; :speed 4 plays four times as fast"),
    ("home,ctrl+home", "end", 0, "begin", "replay: to the first moment"),
    ("end,ctrl+end", "end", 1, "end", "replay: to the last moment"),
)
#: Left of the bar: what it does, and where it is.
_LEFT: Final = 20
#: From this width on what happened there is told beside the bar.
_WIDE: Final = 90


class Scrubber(Widget):
    """One line; nothing at all over a feed that is live."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "scrub--here", "scrub--past", "scrub--rest", "scrub--fault", "scrub--mark", "scrub--text",
    }  # fmt: skip
    DEFAULT_CSS = """
    Scrubber { height: 1; background: $surface; }
    Scrubber > .scrub--here { color: $accent; text-style: bold; }
    Scrubber > .scrub--past { color: $primary; }
    Scrubber > .scrub--rest { color: $foreground-disabled; }
    Scrubber > .scrub--fault { color: $text-error; text-style: bold; }
    Scrubber > .scrub--mark { color: $text-warning; }
    Scrubber > .scrub--text { color: $foreground-muted; }
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._clock = clock
        self._timer: Timer | None = None
        self._played_at = 0.0
        self._at = 0.0
        """The moment asked for; what is shown may be a little behind it."""
        self.speed = 1.0

    @property
    def top(self) -> Dashboard:
        return cast(Dashboard, self.app)

    @property
    def is_playing(self) -> bool:
        return self._timer is not None

    def on_mount(self) -> None:
        self.display = self.top.feed.span() is not None
        self._at = self.top.snapshot.at

    def draw(self) -> None:
        """Draw it anew; the app says when."""
        if self.display:
            self.refresh()

    # ------------------------------------------------------------------------------- moving

    def move(self, what: str, by: int) -> None:
        """What a key of `SCRUB_KEYS` does."""
        match what:
            case "step":
                self.step(by)
            case "jump":
                self.jump(by)
            case "end":
                self.to_end(bool(by))
            case "play":
                self.play()

    def seek(self, at: float) -> None:
        times = self.top.feed.span()
        if times is None:
            return
        self._at = min(max(at, times[0]), times[1])
        self.top.feed.seek(self._at)
        self.top.tick()
        self.refresh()

    def step(self, by: int) -> None:
        """Go so many things further, or back; where a feed knows of none, so many parts of it all."""
        feed, times = self.top.feed, self.top.feed.span()
        if times is None:
            return
        self.stop()
        at = self._at
        for _ in range(abs(by)):
            if isinstance(feed, TimedFeed):
                found = feed.next_moment(at, 1 if by > 0 else -1)
            else:
                found = at + (times[1] - times[0]) / _STEPS * (1 if by > 0 else -1)
            if found is None:
                at = times[1] if by > 0 else times[0]
                break
            at = found
        self.seek(at)

    def jump(self, by: int) -> None:
        """Go to the next thing that went wrong, or the last one before."""
        self.stop()
        others = [stop.at for stop in self._stops() if (stop.at - self._at) * by > 1e-6]
        if others:
            self.seek(min(others) if by > 0 else max(others))

    def to_end(self, is_last: bool) -> None:
        """Go to the first or the last moment."""
        times = self.top.feed.span()
        self.stop()
        if times is not None:
            self.seek(times[is_last])

    def play(self) -> None:
        """Let time run, or stand; from the end it begins anew."""
        times = self.top.feed.span()
        if times is None:
            return
        if self._timer is not None:
            self.stop()
            return
        if self._at >= times[1]:
            self.seek(times[0])
        self._played_at = self._clock()
        self._timer = self.set_interval(_FRAME_S, self._run_on)
        self.refresh()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
            self.refresh()

    def set_speed(self, speed: float) -> None:
        """Seconds of the run in one second."""
        self.speed = min(max(speed, _MIN_SPEED), _MAX_SPEED)
        self.refresh()

    def _run_on(self) -> None:
        now = self._clock()
        took, self._played_at = now - self._played_at, now
        times = self.top.feed.span()
        self.seek(self._at + took * self.speed)
        if times is not None and self._at >= times[1]:
            self.stop()

    def _stops(self) -> Sequence[ReplayMark]:
        feed = self.top.feed
        return feed.stops() if isinstance(feed, TimedFeed) else ()

    # ------------------------------------------------------------------------------- drawing

    def render_line(self, y: int) -> Strip:
        times = self.top.feed.span()
        width, base = self.size.width, self.rich_style
        if y or times is None:
            return Strip.blank(width, base)
        begin, end = times
        step = max(end - begin, 1e-6) / 1000
        here = (
            f"{'▶' if self.is_playing else '‖'} {self.speed:g}x  {moment(self._at - begin, step)} "
        )
        left = f" {here}".ljust(_LEFT)
        right = f" {moment(end - begin, step)} "
        room = width - len(left) - len(right)
        if width >= _WIDE:
            reported = self._reported(begin, end, room)
            right = shorten(f"{right} {reported}", width * 2 // 5) + " " if reported else right
            room = width - len(left) - len(right)
        if room < 4:
            return Strip([Segment(left, base)]).adjust_cell_length(width, base)
        text = self._style("scrub--text", base)
        segments = [
            Segment(left, self._style("scrub--here", base)),
            *self._bar(begin, end, room, base),
            Segment(right, text),
        ]
        return Strip(segments).adjust_cell_length(width, base)

    def _bar(self, begin: float, end: float, room: int, base: Style) -> list[Segment]:
        here = _place(self._at, begin, end, room)
        marks: dict[int, bool] = {}
        for stop in self._stops():
            place = _place(stop.at, begin, end, room)
            marks[place] = marks.get(place, False) or stop.is_fault
        segments = []
        for at in range(room):
            if at == here:
                segments.append(Segment("●", self._style("scrub--here", base)))
            elif at in marks:
                name = "scrub--fault" if marks[at] else "scrub--mark"
                segments.append(Segment("✗" if marks[at] else "▪", self._style(name, base)))
            else:
                name = "scrub--past" if at < here else "scrub--rest"
                segments.append(Segment("━" if at < here else "─", self._style(name, base)))
        return segments

    def _reported(self, begin: float, end: float, room: int) -> str:
        """What happened here."""
        near = (end - begin) / max(room, 1) / 2
        stops = [stop for stop in self._stops() if abs(stop.at - self._at) <= near]
        if not stops:
            return ""
        first = min(stops, key=lambda stop: abs(stop.at - self._at))
        return one_line(first.what) + (f" (+{len(stops) - 1})" if len(stops) > 1 else "")

    def _style(self, name: str, base: Style) -> Style:
        return base + self.get_component_rich_style(name, partial=True)

    # ------------------------------------------------------------------------------- mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.stop()
        self.capture_mouse()
        self._seek_to(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is self:
            self._seek_to(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()

    def _seek_to(self, x: int) -> None:
        times = self.top.feed.span()
        if times is None:
            return
        begin, end = times
        step = max(end - begin, 1e-6) / 1000
        room = self.size.width - _LEFT - len(f" {moment(end - begin, step)} ")
        self.seek(begin + (x - _LEFT) / max(room - 1, 1) * (end - begin))


def _place(at: float, begin: float, end: float, room: int) -> int:
    share = (at - begin) / (end - begin) if end > begin else 1.0
    return min(max(round(share * (room - 1)), 0), room - 1)
