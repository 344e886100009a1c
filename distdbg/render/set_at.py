"""Where a variable that differs between ranks gets its value, and what skips that. Pure.

self.turn is set by `self.turn += 1` (line 26)
a `return` under `if not updates` (line 21) skips that
config is set by `config = json.load(file)` (line 16)
"""

from __future__ import annotations

import re
from typing import Final

from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    bound_at,
    line_text,
    lines_of_attribute,
    path_to,
)
from distdbg.render.loop_exits import loop_exits

_ATTRIBUTE: Final = re.compile(r"self\.(\w+)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: Lines that set it; of more, no one is the reason.
_MOST: Final = 2


def set_at(source: ParsedSource, line: int, variable: str) -> list[str]:
    """Of `self.turn`, `config["bucket_kb"]`, `steps` as it is seen at a line; [] where it is not known."""
    if found := _ATTRIBUTE.match(variable):
        name, lines = found[0], lines_of_attribute(source, line, found[1])
    elif found := _NAME.match(variable):
        name, lines = found[0], _of_name(source, line, found[0])
    else:
        return []
    if not 0 < len(lines) <= _MOST:
        return []
    places = " and ".join(f"`{line_text(source, at)}` (line {at})" for at in lines)
    told = [f"{name} is set by {places}"]
    exits = loop_exits(source, lines[0]) if len(lines) == 1 else []
    return told + [
        one.replace(" skips this call", " skips that") for one in exits if " skips " in one
    ]


def _of_name(source: ParsedSource, line: int, name: str) -> list[int]:
    """In the function around the line, before it."""
    path = path_to(source.tree, line)
    scope = next((one for one in reversed(path) if isinstance(one, Function)), source.tree)
    return sorted({at for at in bound_at(scope, name) if at < line})
