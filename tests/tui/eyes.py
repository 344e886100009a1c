"""What a person at the screen does: press keys, and look until something is there."""

import time
from typing import Any

from textual.pilot import Pilot

from distdbg.tui.app import TopApp
from tests.tui.made_up import SETTLE_S, text_of


def app_of(pilot: Pilot[None]) -> TopApp:
    app: Any = pilot.app
    assert isinstance(app, TopApp)
    return app


async def see(pilot: Pilot[None], *texts: str, no: tuple[str, ...] = ()) -> str:
    """The screen, once all of these are on it and none of `no` is."""
    end = time.monotonic() + SETTLE_S
    while True:
        screen = text_of(app_of(pilot))
        missing = [text for text in texts if text not in screen]
        wrong = [text for text in no if text in screen]
        if not missing and not wrong:
            return screen
        assert time.monotonic() < end, f"missing: {missing}, wrong: {wrong}, on\n{screen}"
        await pilot.pause(0.01)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """One key after the other, each of which has done what it does."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


async def type_in(pilot: Pilot[None], text: str) -> None:
    """Letter by letter, then Enter."""
    await pilot.press(*(_NAMES.get(letter, letter) for letter in text), "enter")
    await pilot.pause()


async def narrow(pilot: Pilot[None], text: str) -> None:
    """As a filter that was typed does."""
    app_of(pilot).narrow_to(text)
    await pilot.pause()


async def draw(pilot: Pilot[None]) -> None:
    """Look at the feed and draw what is there, as the clock of the app makes it."""
    app = app_of(pilot)
    app._drawn = None
    app.tick()
    await pilot.pause()


_NAMES = {
    "/": "slash", ":": "colon", " ": "space", "!": "exclamation_mark", "=": "equals_sign",
    ",": "comma", "#": "number_sign",
}  # fmt: skip
