"""What swallows an error before a call, so that the rank which had it goes on behind that call. Pure.

an error caught by `except LinAlgError` (line 30) skips this call
an error in `with suppress(OSError)` (line 12) skips this call
an error in `with timer` (line 42) skips this call where `return self.add(s)` (line 21 of timing.py) is true
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    imported_beside,
    line_text,
    node_line,
    path_to,
)

#: Returns the source of a file; None where it may not be read, or is no Python.
Parsed = Callable[[str], ParsedSource | None]

_LIMIT: Final = 1
_SUPPRESS: Final = "suppress"
_EXITS: Final = ("exit", "_exit", "abort", "quit")
_MANAGERS: Final = ("contextmanager", "asynccontextmanager")


class _Place(NamedTuple):
    file: str
    source: ParsedSource


def swallowers(parsed: Parsed, file: str, line: int) -> list[str]:
    """List the blocks around a line that swallow errors, within its function, the innermost first."""
    source = parsed(file)
    if source is None:
        return []
    here = _Place(file, source)
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    found: list[str] = []
    for block in reversed(path[start:]):
        if isinstance(block, ast.Try) and _is_behind(block.body, line):
            found += _caught(source, block)
        elif isinstance(block, ast.With) and _is_behind(block.body, line):
            found += _left_by_error(parsed, here, path, block)
    return found[:_LIMIT]


def _is_behind(body: Sequence[ast.stmt], line: int) -> bool:
    """Whether something that may fail comes before the line in this body."""
    return body[0].lineno < line <= node_line(body[-1])


def _caught(source: ParsedSource, block: ast.Try) -> Iterator[str]:
    for handler in block.handlers:
        if not any(map(_ends, ast.walk(handler))):
            text = line_text(source, handler.lineno).removesuffix(":")
            yield f"an error caught by `{text}` (line {handler.lineno}) skips this call"


def _ends(node: ast.AST) -> bool:
    """Whether a rank that comes there does not go on behind the block."""
    if isinstance(node, ast.Call):
        return _name(node.func) in _EXITS
    return isinstance(node, ast.Raise)


def _left_by_error(
    parsed: Parsed, here: _Place, path: Sequence[ast.AST], block: ast.With
) -> Iterator[str]:
    text = line_text(here.source, block.lineno).removesuffix(":")
    head = f"an error in `{text}` (line {block.lineno}) skips this call"
    for item in block.items:
        name = _made_by(path, item.context_expr)
        if name == _SUPPRESS:
            yield head
            continue
        place, made = _definition(parsed, here, name)
        at = None if made is None else _swallows_at(made)
        if at is None or place is None:
            continue
        where = "" if place.file == here.file else f" of {os.path.basename(place.file)}"
        by = f"`{line_text(place.source, at).removesuffix(':')}` (line {at}{where})"
        yield (
            f"{head} by {by}" if isinstance(made, ast.FunctionDef) else f"{head} where {by} is true"
        )


def _made_by(path: Sequence[ast.AST], given: ast.expr) -> str:
    """The class or function that a context manager comes from: 'Timer'; '' where the source does not say."""
    if isinstance(given, ast.Call):
        return _name(given.func)
    for scope in reversed(path):
        if isinstance(scope, (Function, ast.ClassDef, ast.Module)):
            for node in ast.walk(scope):
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Call)
                    and any(ast.unparse(one) == ast.unparse(given) for one in node.targets)
                ):
                    return _name(node.value.func)
    return ""


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _definition(
    parsed: Parsed, here: _Place, name: str
) -> tuple[_Place | None, ast.ClassDef | ast.FunctionDef | None]:
    """Where a name is defined: in this file, or in one of the same folder that it is imported from."""
    if not name:
        return None, None
    for file in (here.file, *imported_beside(here.source, here.file)):
        source = parsed(file)
        for made in ast.walk(source.tree) if source is not None else ():
            if isinstance(made, (ast.ClassDef, ast.FunctionDef)) and made.name == name:
                return _Place(file, source), made  # type: ignore[arg-type]  # the loop is empty without it
    return None, None


def _swallows_at(made: ast.ClassDef | ast.FunctionDef) -> int | None:
    """The line by which a context manager swallows an error, or may; None: it does not."""
    if isinstance(made, ast.FunctionDef):
        return _of_generator(made)
    for method in made.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__exit__":
            for node in ast.walk(method):
                if isinstance(node, ast.Return) and node.value is not None:
                    value = node.value
                    if not (isinstance(value, ast.Constant) and not value.value):
                        return node.lineno
    return None


def _of_generator(made: ast.FunctionDef) -> int | None:
    is_manager = any(_name(getattr(one, "func", one)) in _MANAGERS for one in made.decorator_list)
    for node in ast.walk(made) if is_manager else ():
        if isinstance(node, ast.Try) and any(
            isinstance(one, ast.Yield) for part in node.body for one in ast.walk(part)
        ):
            for handler in node.handlers:
                if not any(isinstance(one, ast.Raise) for one in ast.walk(handler)):
                    return handler.lineno
    return None
