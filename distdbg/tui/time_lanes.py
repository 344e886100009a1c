"""TimeLanes: ranks x time, a line per rank. Made and drawn is only what is in sight.

It knows a window of time, which ranks there are, and where the cursor is; the bars it asks for when a
line is drawn. Who owns it says what happens when the cursor moves (`Moved`) and at Enter (`Chosen`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from distdbg.tui.cells import Tone
from distdbg.tui.lanes import ColourFamily, StyledRun, Window, bar_at, paint
from distdbg.tui.rank_roles import NOBODY, RankRoles
from distdbg.tui.time_axis import axis
from distdbg.view.snapshot import Bar, RankRow

GetBars = Callable[[Sequence[int], float, float], Mapping[int, Sequence[Bar]]]

#: A clock of doubles tells no less.
_MIN_S: Final = 20e-6
_MAX_S: Final = 40 * 86_400.0
_ZOOM: Final = 1.6
#: Share of the window that a key scrolls.
_SCROLL: Final = 1 / 8
#: From this width on there is room for the state beside the rank.
_WIDE: Final = 100


class TimeLanes(Widget, can_focus=True):
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lane--axis", "lane--cursor", "lane--chosen", "lane--line", "lane--now", "lane--name",
        "lane--failed", "lane--open", "lane--row",
        *(f"lane--{family.name.lower()}" for family in ColourFamily),
        *(f"tone--{tone}" for tone in Tone),
    }  # fmt: skip
    DEFAULT_CSS = """
    TimeLanes { height: 1fr; }
    TimeLanes > .lane--axis { color: $foreground-muted; }
    TimeLanes > .lane--row { background: $panel; }
    TimeLanes > .lane--cursor { background: $block-cursor-blurred-background; }
    TimeLanes:focus > .lane--cursor {
        background: $block-cursor-background; color: $block-cursor-foreground; text-style: bold;
    }
    TimeLanes > .lane--chosen {
        background: $block-cursor-background; color: $block-cursor-foreground; text-style: bold;
    }
    TimeLanes > .lane--line { color: $foreground-disabled; }
    TimeLanes > .lane--now { color: $accent; text-style: bold; }
    TimeLanes > .lane--name { color: $background; }
    TimeLanes > .lane--failed { color: $text-error; text-style: bold; }
    TimeLanes > .lane--open { color: $text-warning; text-style: bold; }
    TimeLanes > .lane--other { color: $foreground-muted; }
    TimeLanes > .lane--reduce { color: $primary; }
    TimeLanes > .lane--gather { color: $success; }
    TimeLanes > .lane--scatter { color: $text-primary; }
    TimeLanes > .lane--exchange { color: $error; }
    TimeLanes > .lane--spread { color: $text-success; }
    TimeLanes > .lane--message { color: $warning; }
    TimeLanes > .lane--meeting { color: $foreground-muted; }
    TimeLanes > .tone--plain { color: $foreground; }
    TimeLanes > .tone--muted { color: $foreground-muted; }
    TimeLanes > .tone--good { color: $text-success; }
    TimeLanes > .tone--warn { color: $text-warning; }
    TimeLanes > .tone--fault { color: $text-error; text-style: bold; }
    TimeLanes > .tone--accent { color: $text-accent; text-style: bold; }
    """

    class Moved(Message):
        """The cursor is elsewhere, or what is under it has changed."""

    class Chosen(Message):
        """Enter, or a second click, on an op."""

    class Sought(Message):
        """A click on the axis."""

        def __init__(self, at: float) -> None:
            super().__init__()
            self.at = at

    def __init__(self, bars: GetBars, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._bars = bars
        self.ranks: Sequence[int] = ()
        self._rows: Mapping[int, RankRow] = {}
        self.begin, self.end = 0.0, 1.0
        self.whole: tuple[float, float] = (0.0, 1.0)
        """What `0` shows."""
        self.now = 0.0
        self.is_replay = False
        self.follows = True
        self.at = 0.0
        """The time under the cursor."""
        self._is_placed = False
        """Whether a person has put it there; else it goes with the time of a living job."""
        self._lane = 0
        self._top = 0
        self._number = 0
        """The number of the op that the cursor was put on; 0: whatever is there."""
        self._known: dict[int, Sequence[Bar]] = {}
        self._painted: dict[int, list[StyledRun]] = {}
        self._styles: dict[tuple[int, int, str, bool], Style] = {}
        self._was_set = False
        self.took_s = 0.0
        """How long it took to make the lines of the last drawing."""

    # ------------------------------------------------------------------------------- what is shown

    def show(
        self,
        ranks: Sequence[int],
        rows: Mapping[int, RankRow],
        now: float,
        whole: tuple[float, float],
        *,
        is_replay: bool,
        first_s: float,
        parts: RankRoles = NOBODY,
    ) -> None:
        """Show these ranks at this moment. The first time it follows, `first_s` long."""
        rank = self.rank
        if is_replay and now != self.now:  # whoever moves the time of all looks there
            self.at, self._number = now, 0
        self.ranks, self._rows, self.now, self.whole = ranks, rows, now, whole
        self.is_replay, self._parts = is_replay, parts
        if not self._was_set:
            self._was_set = True
            if is_replay:
                self._see_all()
            else:
                self.begin, self.end = now - first_s, now
            self.at = now
        if rank is not None and rank != self.rank:
            self._lane = ranks.index(rank) if rank in ranks else min(self._lane, len(ranks) - 1)
            self._lane = max(self._lane, 0)
        if self.follows:
            self._follow()
        self._forget()

    def _follow(self) -> None:
        """Keep the moment in sight; live, at the right end."""
        long = self.end - self.begin
        if not self.is_replay:
            # By whole halves of a letter: what has not moved so far needs no new drawing.
            half = self.window.per_half
            self.end = (self.now // half + 1) * half + long * 0.02
            self.begin = self.end - long
            self.at = max(self.at, self.begin) if self._is_placed else self.now
        elif not self.begin <= self.now <= self.end:
            self.begin = self.now - long / 2
            self.end = self.begin + long

    def _see_all(self) -> None:
        begin, end = self.whole
        room = max(end - begin, 1e-3) * 0.01
        self.begin, self.end = begin - room, end + room

    def _forget(self) -> None:
        self._known.clear()
        self._painted.clear()
        self._styles.clear()
        self.took_s = 0.0
        self.refresh()
        self.post_message(self.Moved())

    @property
    def rank(self) -> int | None:
        return self.ranks[self._lane] if self._lane < len(self.ranks) else None

    @property
    def bar(self) -> Bar | None:
        rank = self.rank
        if rank is None:
            return None
        bars = self._of(rank)
        if self._number:
            for bar in bars:
                if bar.number == self._number:
                    return bar
        return bar_at(bars, self.at, self.now, 3 * self.window.per_half)

    @property
    def in_sight(self) -> Sequence[int]:
        return self.ranks[self._top : self._top + max(self.size.height - 1, 1)]

    @property
    def window(self) -> Window:
        return Window(self.begin, self.end, max(self.size.width - self._label_width, 1))

    @property
    def _label_width(self) -> int:
        return 23 if self.size.width >= _WIDE else 7

    def _of(self, rank: int) -> Sequence[Bar]:
        if rank not in self._known:
            wanted = self.in_sight if rank in self.in_sight else (rank,)
            self._known.update(self._bars(wanted, self.begin, self.end))
            for one in wanted:
                self._known.setdefault(one, ())
        return self._known[rank]

    # ------------------------------------------------------------------------------- drawing

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y == 0:
            return self._axis(base)
        at = self._top + y - 1
        if at >= len(self.ranks):
            return Strip.blank(width, base)
        rank, is_cursor = self.ranks[at], at == self._lane
        began = time.perf_counter()
        window = self.window
        runs = self._painted.get(rank)
        if is_cursor:
            bar = self.bar
            runs = paint(self._of(rank), window, self.now, bar.number if bar else 0)
        elif runs is None:
            runs = self._painted[rank] = paint(self._of(rank), window, self.now)
        lines = [(window.letter(self.at), "line")]
        if self.is_replay:
            lines.insert(0, (window.letter(self.now), "now"))
        for letter, mark in lines:
            if 0 <= letter < window.width:
                runs = _put_line(runs, letter, mark)
        segments = [self._label(rank, is_cursor, base)]
        for text, family, behind, mark in runs:
            key = family, behind, mark, is_cursor
            style = self._styles.get(key)
            if style is None:
                style = self._styles[key] = self._style_of(*key, base)
            segments.append(Segment(text, style))
        self.took_s += time.perf_counter() - began
        return Strip(segments, width)

    def _axis(self, base: Style) -> Strip:
        window = self.window
        style = base + self._style("lane--axis")
        text = axis(self.begin, self.end, self.whole[0], window.width)
        label = f"{'rank':>5}".ljust(self._label_width)
        segments = [Segment(label, style)]
        now = window.letter(self.now)
        if self.is_replay and 0 <= now < window.width:
            segments += [
                Segment(text[:now], style),
                Segment("▼", base + self._style("lane--now")),
                Segment(text[now + 1 :], style),
            ]
        else:
            segments.append(Segment(text, style))
        return Strip(segments, self.size.width)

    def _label(self, rank: int, is_cursor: bool, base: Style) -> Segment:
        row = self._rows.get(rank)
        text = f"{self._parts.mark(rank).text:1}{rank:>4} "
        if self._label_width > 7 and row is not None:
            text += row.state
        tone = self._parts.tone(row) if row is not None else Tone.MUTED
        style = base + self._style(f"tone--{tone}")
        if is_cursor:
            style = base + self._style("lane--cursor")
        return Segment(f"{text[: self._label_width - 1]:{self._label_width}}", style)

    def _style_of(self, family: int, behind: int, mark: str, is_cursor: bool, base: Style) -> Style:
        style = base + self._style("lane--row") if is_cursor else base
        if mark in ("failed", "open", "line", "now", "chosen"):
            return style + self._style(f"lane--{mark}")
        if not family:
            return style
        colour = self._style(f"lane--{ColourFamily(family).name.lower()}").color
        if mark == "name":
            return style + Style(bgcolor=colour) + self._style("lane--name")
        style += Style(color=colour)
        if behind:
            style += Style(bgcolor=self._style(f"lane--{ColourFamily(behind).name.lower()}").color)
        return style

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(name, partial=True)

    def on_resize(self, event: events.Resize) -> None:
        self._keep_in_sight()
        if self.follows and self._was_set:
            self._follow()
        self._forget()

    def on_focus(self) -> None:
        self._styles.clear()
        self.refresh()

    on_blur = on_focus

    # ------------------------------------------------------------------------------- keys

    def _go(self, lane: int) -> None:
        self._lane = max(min(lane, len(self.ranks) - 1), 0)
        self._number = 0
        self._keep_in_sight()
        self.refresh()
        self.post_message(self.Moved())

    def _keep_in_sight(self) -> None:
        room = max(self.size.height - 1, 1)
        top = min(max(self._top, self._lane - room + 1), self._lane)
        if top != self._top:
            self._top = top
            self._known.clear()
            self._painted.clear()

    def _see(self, begin: float, end: float) -> None:
        long = min(max(end - begin, _MIN_S), _MAX_S)
        middle = (begin + end) / 2
        self.begin, self.end = middle - long / 2, middle + long / 2
        self._forget()

    def move(self, what: str, by: int) -> None:
        """What a key does: 'rank', 'page', 'scroll', 'zoom', 'op', 'all', 'choose'."""
        match what:
            case "rank":
                self._go(self._lane + by)
            case "page":
                self._go(self._lane + by * max(self.size.height - 2, 1))
            case "scroll":
                self._scroll_time(by)
            case "zoom":
                self._zoom(by)
            case "op":
                self._to_op(by)
            case "all":
                self._see_all()
                self._forget()
            case "choose":
                self._choose()

    def _scroll_time(self, by: int) -> None:
        off = by * (self.end - self.begin) * _SCROLL
        if not self.is_replay:
            self.follows = False
        self.at += off
        self._is_placed = True
        self._number = 0
        self._see(self.begin + off, self.end + off)

    def _zoom(self, by: int) -> None:
        factor = _ZOOM**-by
        about = self.at if self.begin <= self.at <= self.end else (self.begin + self.end) / 2
        if self.follows and not self.is_replay:
            about = self.end
        self._see(about - (about - self.begin) * factor, about + (self.end - about) * factor)

    def hold(self) -> None:
        """Stand still, or follow what comes."""
        self.follows = not self.follows
        if self.follows:
            self._is_placed = False
            self._follow()
        self._forget()

    def _to_op(self, by: int) -> None:
        """Go to the next or last op of the rank; what is out of sight is brought there."""
        rank = self.rank
        if rank is None:
            return
        here, long = self.bar, self.end - self.begin
        begin, end = self.begin - long, self.end + long
        bars = self._bars((rank,), begin, end).get(rank, ())
        since = here.issued if here is not None else self.at
        if by > 0:
            found = next((bar for bar in bars if _key(bar) > (since, _number(here))), None)
        else:
            found = next(
                (bar for bar in reversed(bars) if _key(bar) < (since, _number(here))), None
            )
        if found is None:
            return
        self.at, self._number = found.issued, found.number
        self._is_placed = True
        if not self.is_replay:
            self.follows = False
        if not self.begin <= self.at <= self.end:
            self._see(self.at - long / 2, self.at + long / 2)
        else:
            self.refresh()
            self.post_message(self.Moved())

    def _choose(self) -> None:
        if self.rank is not None:
            self.post_message(self.Chosen())

    # ------------------------------------------------------------------------------- mouse

    def on_click(self, event: events.Click) -> None:
        window = self.window
        letter = event.x - self._label_width
        if event.y == 0:
            self.post_message(self.Sought(window.time(letter)))
            return
        lane = self._top + event.y - 1
        if lane >= len(self.ranks):
            return
        before = self.rank, self.bar
        if letter >= 0:
            self.at = window.time(letter)
            self._is_placed = True
        self._go(lane)
        if letter >= 0 and before == (self.rank, self.bar) and before[1] is not None:
            self._choose()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, by: int) -> None:
        """Over the ranks; with ctrl it zooms about the mouse, with shift it goes through time."""
        event.stop()
        if event.ctrl:
            letter = event.x - self._label_width
            if letter >= 0:
                self.at = self.window.time(letter)
                self._is_placed = True
            self._zoom(-by)
        elif event.shift:
            self._scroll_time(by)
        else:
            self._go(self._lane + 3 * by)


def _number(bar: Bar | None) -> int:
    return 0 if bar is None else bar.number


def _key(bar: Bar) -> tuple[float, int]:
    return bar.issued, bar.number


def _put_line(runs: list[StyledRun], at: int, mark: str) -> list[StyledRun]:
    """An upright line through a letter where nothing is."""
    found: list[StyledRun] = []
    start = 0
    for run in runs:
        end = start + len(run.text)
        if start <= at < end and not run.family and not run.mark:
            here = at - start
            parts = (
                StyledRun(run.text[:here]), StyledRun("│" if mark == "line" else "┃", mark=mark),
                StyledRun(run.text[here + 1 :]),
            )  # fmt: skip
            found += [part for part in parts if part.text]
        else:
            found.append(run)
        start = end
    return found
