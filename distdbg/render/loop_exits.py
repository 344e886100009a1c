"""What skips a call in a loop, or ends the loop early, in its source.

    may be skipped by `continue` under `if len(points) == 0` (line 47)
    may be left by `return` under `if patience.exhausted(loss)` (line 57)

Of ranks that make one call fewer than others in the same loop, one of these is the reason. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from distdbg.render.enclosing import Function, Loop, Source, node_line, path_to, say_condition

_MOST: Final = 2


def loop_exits(source: Source, line: int) -> list[str]:
    """Of the loops around a line, within its function: the innermost first."""
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    found: list[str] = []
    for loop in reversed(path[start:]):
        if isinstance(loop, Loop) and loop.lineno < line:
            found += _exits(source, loop, line)
    return list(dict.fromkeys(found))[:_MOST]


def _exits(source: Source, loop: Loop, line: int) -> Iterator[str]:
    for node, is_nested in _statements(loop):
        match node:
            case ast.Continue() if not is_nested and node.lineno < line:
                verb, word = "skipped", "continue"
            case ast.Break() if not is_nested:
                verb, word = "left", "break"
            case ast.Return():
                verb, word = "left", "return"
            case _:
                continue
        condition = say_condition(source, node.lineno, loop)
        if condition:
            yield f"may be {verb} by `{word}` {condition}"


def _statements(loop: Loop) -> Iterator[tuple[ast.stmt, bool]]:
    """Those of its body, and whether they stand in a loop within it; in the order of their lines."""
    found: list[tuple[ast.stmt, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(one, False) for one in loop.body]
    while left:
        node, is_nested = left.pop()
        if isinstance(node, (Function, ast.ClassDef)):
            continue
        if isinstance(node, ast.stmt):
            found.append((node, is_nested))
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            inner = is_nested or isinstance(node, Loop)
            left += [(one, inner) for one in ast.iter_child_nodes(node)]
    yield from sorted(found, key=lambda one: (one[0].lineno, node_line(one[0])))
