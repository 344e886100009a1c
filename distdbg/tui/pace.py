"""Pace: at most so many redraws a second, whatever comes. A screen that keeps it is Paced.

textual redraws up to sixty times a second while something changes: a held key, a mouse that is moved, a
terminal that is dragged larger. Here the first redraw after a rest is made at once and the next one waits,
so a single key is answered as fast as ever, and a burst costs what ten redraws cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from textual.command import CommandPalette
from textual.screen import Screen

MAX_PER_S: Final = 10


class RedrawPace:
    def __init__(
        self, between_s: float = 1 / MAX_PER_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.between_s = between_s
        self._clock = clock
        self._last = -1e9

    def is_free(self) -> bool:
        return self._clock() - self._last >= self.between_s

    def take(self) -> bool:
        """Whether it is time; the next time is counted from now then."""
        if not self.is_free():
            return False
        self._last = self._clock()
        return True


class PacedApp(Protocol):
    """The app of such a screen (frame.py)."""

    pace: RedrawPace

    def page_failed(self, error: BaseException) -> None:
        """Put a page that says so in the place of the one that is looked at."""
        ...


class PacedScreen(Screen[Any]):
    """A screen that draws at the pace of its app, and that survives what cannot be drawn."""

    def _on_timer_update(self) -> None:
        # textual's own timer calls it; until it is told to rest, which is done in there, it comes again.
        app = cast(PacedApp, self.app)
        if not app.pace.is_free():
            return
        try:
            super()._on_timer_update()
        except Exception as error:  # noqa: BLE001 - a widget that cannot be drawn must not end the app
            app.page_failed(error)

    def _compositor_refresh(self) -> None:
        # The one place from which a screen writes to the terminal; a terminal that is dragged larger comes
        # here past the timer.
        if cast(PacedApp, self.app).pace.take():
            super()._compositor_refresh()
        else:
            self._repaint_required = True
            self.check_idle()


class PacedPalette(CommandPalette, PacedScreen):
    """textual's palette."""
