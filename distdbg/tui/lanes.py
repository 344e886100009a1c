"""The bars of one rank as letters: two halves of time in each, so a line of 100 shows 200 moments. Pure.

    ╶───▐████    waits for others until the last has come, then moves
    ▄▄▄▄         moves, less than half of the time: many short ops with room between them
    ───✗         failed while it waited;   ███▸   has not ended

What it does is told by the form of a letter, which op it is by the colour, and by its name where there is
room for it. Kinds are put into families, since eleven colours look too much alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from distdbg.view.snapshot import Bar


class ColourFamily(IntEnum):
    OTHER = 1
    REDUCE = 2
    GATHER = 3
    SCATTER = 4
    EXCHANGE = 5
    SPREAD = 6
    MESSAGE = 7
    MEETING = 8


#: In the order of the legend; what is not here is `OTHER`.
KINDS: Final = {
    "all_reduce": ColourFamily.REDUCE,
    "reduce": ColourFamily.REDUCE,
    "all_gather": ColourFamily.GATHER,
    "gather": ColourFamily.GATHER,
    "reduce_scatter": ColourFamily.SCATTER,
    "scatter": ColourFamily.SCATTER,
    "all_to_all": ColourFamily.EXCHANGE,
    "broadcast": ColourFamily.SPREAD,
    "send": ColourFamily.MESSAGE,
    "recv": ColourFamily.MESSAGE,
    "barrier": ColourFamily.MEETING,
    "monitored_barrier": ColourFamily.MEETING,
}

#: What the half of a letter shows; above it, shifted, the family.
BLANK: Final = 0
WAITS: Final = 1
SPARSE: Final = 2
MOVES: Final = 3
_BITS: Final = 2
_WHAT: Final = (1 << _BITS) - 1

_LETTERS: Final = {
    (BLANK, BLANK): " ", (BLANK, WAITS): "╶", (BLANK, SPARSE): "▗", (BLANK, MOVES): "▐",
    (WAITS, BLANK): "╴", (WAITS, WAITS): "─", (WAITS, SPARSE): "▗", (WAITS, MOVES): "▐",
    (SPARSE, BLANK): "▖", (SPARSE, WAITS): "▖", (SPARSE, SPARSE): "▄", (SPARSE, MOVES): "▟",
    (MOVES, BLANK): "▌", (MOVES, WAITS): "▌", (MOVES, SPARSE): "▙", (MOVES, MOVES): "█",
}  # fmt: skip
_FAMILIES: Final = {kind: family << _BITS for kind, family in KINDS.items()}
_OTHER: Final = ColourFamily.OTHER << _BITS
#: Shorter names would tell nothing.
_MIN_NAME: Final = 8


class StyledRun(NamedTuple):
    text: str
    family: int = 0
    """The family of the letters; 0: nothing is there."""
    behind: int = 0
    """Family of what is behind them: the right half of a letter whose left half is of another."""
    mark: str = ""
    """'failed', 'open', 'name' (written on a bar that moves), 'chosen'."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a line shows."""

    begin: float
    end: float
    width: int
    """In letters."""

    @property
    def per_half(self) -> float:
        """Seconds."""
        return (self.end - self.begin) / (2 * self.width)

    def half(self, at: float) -> int:
        """In which half of a letter a moment is; also outside."""
        return int((at - self.begin) / self.per_half // 1)

    def letter(self, at: float) -> int:
        return self.half(at) // 2

    def time(self, letter: float) -> float:
        return self.begin + (letter + 0.5) * 2 * self.per_half


def parts_of(bar: Bar, now: float) -> tuple[float, float, float]:
    """When it was issued, began to move, ended; an op that never began waited to its end."""
    end = bar.ended if bar.ended is not None else max(now, bar.issued)
    if bar.started is not None:
        return bar.issued, min(max(bar.started, bar.issued), end), end
    has_waited = bar.ended is None or bar.has_failed
    return bar.issued, end if has_waited else bar.issued, end


def paint(bars: Iterable[Bar], window: Window, now: float, chosen: int = 0) -> list[StyledRun]:
    """The letters of one rank. `chosen`: the number of the op that is to be seen among them."""
    halves = bytearray(2 * window.width)
    count, begin, scale = len(halves), window.begin, 1 / window.per_half
    short: dict[int, float] = {}
    marks: dict[int, str] = {}
    long: list[tuple[int, int, int, int, Bar]] = []
    the_chosen: tuple[int, int] | None = None
    for bar in bars:  # tens of thousands in a second: no call that can be spared
        issued, started, ended = bar.issued, bar.started, bar.ended
        is_open = ended is None
        if ended is None:
            ended = max(issued, now)
        a, z = (issued - begin) * scale, (ended - begin) * scale
        if z < 0 or a >= count:
            continue
        if started is None:
            m = z if is_open or bar.has_failed else a
        else:
            m = min(max((started - begin) * scale, a), z)
        family = _FAMILIES.get(bar.kind, _OTHER)
        if z - a < 1:
            key = (int(a) if a > 0 else 0) << 8 | family
            if m > a:
                short[key | WAITS] = short.get(key | WAITS, 0.0) + m - a
            short[key | MOVES] = short.get(key | MOVES, 0.0) + z - m
        else:
            first, middle, last = max(round(a), 0), max(round(m), 0), min(round(z), count)
            middle = min(middle, last)
            if middle > first:
                halves[first:middle] = bytes((family | WAITS,)) * (middle - first)
            if last > middle:
                halves[middle:last] = bytes((family | MOVES,)) * (last - middle)
            long.append((first, middle, last, family, bar))
        if bar.has_failed:
            marks[min(max(int(z) // 2, 0), window.width - 1)] = "✗"
        elif is_open and z <= count + 1:
            marks[min(max(int(z) // 2, 0), window.width - 1)] = "▸"
        if bar.number == chosen:
            first = min(max(int(a), 0), count - 1)
            the_chosen = first // 2, max(min(round(z) - 1, count - 1), first) // 2
    _add_short(halves, short)
    return _runs(halves, _names(halves, long), marks, the_chosen)


def _add_short(halves: bytearray, short: dict[int, float]) -> None:
    """Ops shorter than a half of a letter: what they did most there, and whether it was most of the time."""
    best: dict[int, tuple[float, int]] = {}
    sums: dict[int, list[float]] = {}
    for key, took in short.items():
        at, code = key >> 8, key & 0xFF
        sums.setdefault(at, [0.0, 0.0, 0.0, 0.0])[code & _WHAT] += took
        best[at] = max(best.get(at, (-1.0, 0)), (took, code))
    for at, (_, code) in best.items():
        if at >= len(halves) or halves[at] & _WHAT != BLANK:
            continue
        waited, moved = sums[at][WAITS], sums[at][MOVES]
        if code & _WHAT == WAITS and waited >= 0.5:
            halves[at] = code
        else:
            halves[at] = (code & ~_WHAT) | (MOVES if moved >= 0.5 else SPARSE)


def _names(
    halves: bytearray, long: Sequence[tuple[int, int, int, int, Bar]]
) -> list[tuple[int, str, int, bool]]:
    """Letter, text, family and whether it moves, of names that have room on their own bar."""
    found = []
    for first, middle, last, family, bar in long:
        for low, high, what in ((middle, last, MOVES), (first, middle, WAITS)):
            left, right = (low + 1) // 2, high // 2
            room = right - left - 2
            if room < _MIN_NAME or room < len(bar.name):
                continue
            if halves[low:high].count(family | what) == high - low:
                found.append((left + 1, bar.name, family >> _BITS, what == MOVES))
                break
    return found


def _runs(
    halves: bytearray,
    names: Sequence[tuple[int, str, int, bool]],
    marks: dict[int, str],
    chosen: tuple[int, int] | None,
) -> list[StyledRun]:
    """Equal neighbours as one run."""
    width = len(halves) // 2
    letters = [""] * width
    styles: list[tuple[int, int, str]] = [(0, 0, "")] * width
    known: dict[int, tuple[str, tuple[int, int, str]]] = {}
    for at in range(width):
        left, right = halves[2 * at], halves[2 * at + 1]
        key = left << 8 | right
        if key not in known:
            known[key] = _letter(left, right)
        letters[at], styles[at] = known[key]
    for start, text, family, moves in names:
        if not moves:
            letters[start - 1] = letters[start + len(text)] = " "
        for at, letter in enumerate(text, start):
            letters[at] = letter
            styles[at] = (family, 0, "name" if moves else "")
    for at, letter in marks.items():
        letters[at], styles[at] = letter, (styles[at][0], 0, "failed" if letter == "✗" else "open")
    if chosen is not None:
        for at in range(chosen[0], chosen[1] + 1):
            styles[at] = (*styles[at][:2], "chosen")
    runs: list[StyledRun] = []
    begin = 0
    for at in range(1, width + 1):
        if at == width or styles[at] != styles[begin]:
            runs.append(StyledRun("".join(letters[begin:at]), *styles[begin]))
            begin = at
    return runs


def _letter(left: int, right: int) -> tuple[str, tuple[int, int, str]]:
    letter = _LETTERS[left & _WHAT, right & _WHAT]
    if left & right & _WHAT == MOVES and left != right:
        return "▌", (left >> _BITS, right >> _BITS, "")
    # The one of two that moves gives the colour, else the left one.
    main = right if (left & _WHAT) < (right & _WHAT) else left
    return letter, (main >> _BITS, 0, "")


def bar_at(bars: Sequence[Bar], at: float, now: float, slack: float) -> Bar | None:
    """The op that a moment is in, the one issued last; else the nearest within `slack` seconds."""
    best, best_off = None, slack
    for bar in bars:
        end = bar.ended if bar.ended is not None else max(now, bar.issued)
        off = max(bar.issued - at, at - end, 0.0)
        if off <= best_off:
            best, best_off = bar, off
    return best
