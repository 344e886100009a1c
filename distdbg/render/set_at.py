"""Where a variable that differs between ranks gets its value, and what skips that. Pure.

self.turn is set by `self.turn += 1` (line 26)
a `return` under `if not updates` (line 21) skips that
config is set by `config = json.load(file)` (line 16)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from distdbg.render.enclosing import Function, Source, bound_at, line_text, path_to
from distdbg.render.loop_exits import loop_exits

_ATTRIBUTE: Final = re.compile(r"self\.(\w+)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: Lines that set it; of more, no one is the reason.
_MOST: Final = 2


def set_at(source: Source, line: int, variable: str) -> list[str]:
    """Of `self.turn`, `config["bucket_kb"]`, `steps` as it is seen at a line; [] where it is not known."""
    if found := _ATTRIBUTE.match(variable):
        name, lines = found[0], _of_attribute(source, line, found[1])
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


def _of_attribute(source: Source, line: int, name: str) -> list[int]:
    """In the class around the line: by its methods, else where it is made."""
    around = [one for one in path_to(source.tree, line) if isinstance(one, ast.ClassDef)]
    if not around:
        return []
    made: list[int] = []
    later: list[int] = []
    for method in around[-1].body:
        if isinstance(method, Function):
            lines = made if method.name == "__init__" else later
            lines += sorted(set(_stores(method, name)))
    return later or made


def _stores(method: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=known, ctx=ast.Store()):
                if known == name:
                    yield node.lineno


def _of_name(source: Source, line: int, name: str) -> list[int]:
    """In the function around the line, before it."""
    path = path_to(source.tree, line)
    scope = next((one for one in reversed(path) if isinstance(one, Function)), source.tree)
    return sorted({at for at in bound_at(scope, name) if at < line})
