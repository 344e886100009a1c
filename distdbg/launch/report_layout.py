"""How a report looks: first word, details, wrapped and coloured for a terminal only. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

_BOLD_RED: Final = "\x1b[1;31m"
_BOLD_YELLOW: Final = "\x1b[1;33m"
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"
_STOPPED: Final = "STOPPED"
#: Narrower ones are taken for a size that nobody has set.
_MIN_WIDTH: Final = 40


class LaterLine(str):
    """A line that nobody needs to see the cause: who else ended, when, where to look things up."""

    __slots__ = ()


def lay_out(
    word: str, lines: Sequence[str], *, width: int | None = None, is_coloured: bool = False
) -> str:
    """The text, each line with its end. `width` None: no line is broken, as in a file.

    `lines` are printable; the first one stands behind the word, the others two columns in.
    """
    first, *details = lines
    made = _wrap(f"{word}: {first}", "  ", width)
    for line in details:
        indent = "  " + " " * (len(line) - len(line.lstrip()))
        made += _wrap(f"  {line}", f"{indent}  ", width)
    if is_coloured:
        made = [_colour(word, at, line) for at, line in enumerate(made)]
    return "\n".join([*made, ""])


def width_of(is_terminal: bool, columns: int) -> int | None:
    """Where lines are broken: on a terminal that says how wide it is."""
    return columns if is_terminal and columns >= _MIN_WIDTH else None


def wants_colour(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Whether to colour, as https://no-color.org says; a terminal without abilities gets none either."""
    return is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _wrap(line: str, indent: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width:
        return [line]
    start = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.lstrip(),
        width,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,  # a path can be copied
        break_on_hyphens=False,
    )


def _colour(word: str, at: int, line: str) -> str:
    if at == 0:
        start = _BOLD_YELLOW if word == _STOPPED else _BOLD_RED
        return f"{start}{word}{_PLAIN}{line[len(word) :]}"
    for begin in ("  hint:", "  next:"):
        if line.startswith(begin):
            return f"  {_BOLD}{begin.strip()}{_PLAIN}{line[len(begin) :]}"
    return line
