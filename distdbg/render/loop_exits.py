"""What skips a call in its source, or ends the loop that it stands in.

    may be skipped by `return` under `if path.exists()` (line 25)
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
    """Of the loops around a line, within its function: the innermost first; then of the function."""
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    found: list[str] = []
    for block in reversed(path[start:]):
        if isinstance(block, Loop) and block.lineno < line:
            found += _exits(source, block, line)
        elif isinstance(block, Function):
            found += _early_returns(source, block, line)
    return list(dict.fromkeys(found))[:_MOST]


def _early_returns(source: Source, function: Function, line: int) -> Iterator[str]:
    """Those before the line, in none of its loops."""
    for node, is_nested in _statements(function):
        if isinstance(node, ast.Return) and not is_nested and node_line(node) < line:
            condition = say_condition(source, node.lineno, function)
            if condition:
                yield f"may be skipped by `return` {condition}"


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


def _statements(block: Loop | Function) -> Iterator[tuple[ast.stmt, bool]]:
    """Those of its body, and whether they stand in a loop within it; in the order of their lines."""
    found: list[tuple[ast.stmt, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(one, False) for one in block.body]
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
