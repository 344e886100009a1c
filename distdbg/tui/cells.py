"""How numbers, times, states and ranks are written in a cell, and in which tone. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from distdbg.record.printable import printable
from distdbg.record.rank_state import RankState


class Tone(StrEnum):
    """What a piece of text is about; a theme gives it a colour, a terminal without colour weight."""

    PLAIN = "plain"
    MUTED = "muted"
    GOOD = "good"
    WARN = "warn"
    FAULT = "fault"
    ACCENT = "accent"
    TITLE = "title"


@dataclass(frozen=True, slots=True)
class Cell:
    """One piece of text; one line, whatever is in it."""

    text: str
    tone: Tone = Tone.PLAIN


_TONES: Final = {
    RankState.STARTING: Tone.MUTED,
    RankState.RUNNING: Tone.GOOD,
    RankState.WAITING: Tone.WARN,
    RankState.DEBUGGED: Tone.ACCENT,
    RankState.LEFT: Tone.MUTED,
    RankState.ENDED: Tone.MUTED,
}


def tone_of(state: RankState) -> Tone:
    """Waiting is no fault by itself; what is stuck, failed or dead is one."""
    return _TONES.get(state, Tone.FAULT)


def is_fault(state: RankState) -> bool:
    """Whether a rank in this state belongs into a list of faults."""
    return tone_of(state) is Tone.FAULT


def age(seconds: float | None) -> str:
    """'0.3 s', '12 s', '4 min', '3.2 h', '5 d': always short, for a column."""
    if seconds is None:
        return ""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def span(seconds: float | None) -> str:
    """'850 ns', '33.6 us', '1.2 ms', '3.0 s': how long something takes."""
    if seconds is None:
        return ""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit * 0.9995:
            value = seconds * factor
            return (
                f"{value:.0f} {unit}" if value >= 99.95 or unit == "ns" else f"{value:.1f} {unit}"
            )
    return age(seconds)


def nbytes(count: float | None) -> str:
    """'512 B', '4.0 KiB', '1.5 GiB'."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1023.95:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def rate(nbytes_per_s: float | None) -> str:
    """'1.5 GB/s', as nccl-tests writes it: powers of ten."""
    if nbytes_per_s is None:
        return ""
    value = nbytes_per_s
    for unit in ("B/s", "kB/s", "MB/s", "GB/s"):
        if value < 999.5:
            return (
                f"{value:.0f} {unit}" if unit == "B/s" or value >= 99.5 else f"{value:.1f} {unit}"
            )
        value /= 1000
    return f"{value:.1f} TB/s"


def share(value: float | None) -> str:
    """'3 %', '100 %'."""
    return "" if value is None else f"{100 * value:.0f} %"


def one_line(text: str) -> str:
    """What a program wrote, as one line that a terminal obeys in nothing."""
    return printable(text)


def shorten(text: str, width: int) -> str:
    """Cut it to `width` letters; the end says that it was cut."""
    if len(text) <= width:
        return text
    return text[: width - 1] + "…" if width > 0 else ""


class Filter:
    """What `/` takes: a regular expression, any case; with `!` before it, what does not fit."""

    def __init__(self, text: str) -> None:
        """re.error says what is wrong with it."""
        self.text = text
        self._is_inverse = text.startswith("!")
        self._pattern = re.compile(text[1:] if self._is_inverse else text, re.IGNORECASE)

    def fits(self, cells: Sequence[Cell]) -> bool:
        """Whether a row is to be seen."""
        line = " ".join(cell.text for cell in cells)
        return (self._pattern.search(line) is None) == self._is_inverse
