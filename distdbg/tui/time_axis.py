"""Where the lines of an axis of time are, and what is written at them. Pure."""

from __future__ import annotations

import math
from typing import Final

from distdbg.tui.cells import span

_STEPS: Final = (1, 2, 5)
_LONG_STEPS: Final = (
    60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200, 86_400, 172_800, 604_800, 2_592_000,
)  # fmt: skip
#: Between two lines, so that what is written at one ends before the next.
_MIN_LETTERS: Final = 12


def step_of(seconds: float, width: int) -> float:
    """How far apart the lines are on an axis of so many seconds and letters."""
    least = seconds * _MIN_LETTERS / max(width, 1)
    if least > 30:
        return next((float(step) for step in _LONG_STEPS if step >= least), float(_LONG_STEPS[-1]))
    power = 10.0 ** math.floor(math.log10(max(least, 1e-9)))
    return next((k * power for k in (*_STEPS, 10) if k * power >= least * 0.999), 10 * power)


def moment(seconds: float, step: float) -> str:
    """The time since the start, as exactly as the step needs: '0.25 s', '12 s', '3:05 min', '1:04:00 h'."""
    sign, seconds = ("-", -seconds) if seconds < -step / 2 else ("", max(seconds, 0.0))
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else 0
    whole = round(seconds, digits)
    if whole < 120:
        return f"{sign}{whole:.{digits}f} s"
    minutes, rest = divmod(whole, 60)
    rest_text = f"{rest:0{3 + digits if digits else 2}.{digits}f}"
    if minutes < 60:
        return f"{sign}{minutes:.0f}:{rest_text} min"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours:.0f}:{minutes:02.0f}:{rest_text} h"


def axis(begin: float, end: float, zero: float, width: int) -> str:
    """One line: '╷12 s      ╷14 s'. Times that are close together are told from the first of them."""
    step = step_of(end - begin, width)
    line = [" "] * width
    first = math.ceil((begin - zero) / step - 1e-6)
    base: float | None = None
    at = first
    while (place := int((at * step + zero - begin) / (end - begin) * width)) < width:
        since = at * step
        if base is None or step >= 1e-3:
            text, base = moment(since, step), since
        else:
            text = f"+{span(since - base)}"
        if place >= 0 and place + 1 + len(text) <= width:
            line[place : place + 1 + len(text)] = ["╷", *text]
        at += 1
    return "".join(line)
