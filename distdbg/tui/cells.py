"""Formats numbers, times, states and ranks for cells, with their tones. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from distdbg.record.durations import duration_text, nbytes_text
from distdbg.record.printable import printable
from distdbg.record.rank_state import RankState


class Tone(StrEnum):
    """What a piece of text is about; a theme gives it a colour, a terminal without colour weight."""

    PLAIN = "plain"
    MUTED = "muted"
    GOOD = "good"
    WARN = "warn"
    VICTIM = "victim"
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
    RankState.STOPPED: Tone.FAULT,
    RankState.TRACED: Tone.FAULT,
    RankState.DEBUGGED: Tone.ACCENT,
    RankState.HOLDS_GIL: Tone.WARN,
    RankState.BLOCKED_IO: Tone.WARN,
    RankState.LEFT: Tone.MUTED,
    RankState.ENDED: Tone.MUTED,
    RankState.FAILED: Tone.FAULT,
    RankState.DEAD: Tone.FAULT,
}


def tone_of(state: RankState) -> Tone:
    """The tone of a rank that no verdict names: that one runs, waits or sleeps is nothing to look at."""
    return _TONES.get(state, Tone.PLAIN)


def is_fault(state: RankState) -> bool:
    """Whether a rank in this state belongs into a list of faults."""
    return tone_of(state) in (Tone.FAULT, Tone.WARN)


def age(seconds: float | None) -> str:
    """'0.35 s', '12 s', '3 min 20 s'; '' for what is not known."""
    return "" if seconds is None else duration_text(seconds)


def span(seconds: float | None) -> str:
    """'850 ns', '33.6 us', '1.2 ms', '3.0 s': how long something takes."""
    return age(seconds)


def nbytes(count: float | None) -> str:
    """'512 B', '4.0 KiB', '1.5 GiB'."""
    return "" if count is None else nbytes_text(count)


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
