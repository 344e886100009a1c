"""What skips a call in its source, or ends the loop that it stands in.

    a `return` under `if path.exists()` (line 25) skips this call
    a `continue` under `if len(points) == 0` (line 47) skips this call
    a `return` under `if patience.exhausted(loss)` (line 57) ends the loop (line 53)

Of ranks that make one call fewer than others in the same loop, one of these is the reason. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from distdbg.render.enclosing import (
    Function,
    Loop,
    ParsedSource,
    is_in_body,
    line_text,
    node_line,
    path_to,
    say_condition,
)

_LIMIT: Final = 2


def loop_exits(source: ParsedSource, line: int) -> list[str]:
    """Describe what leaves the loops around a line, within its function: the innermost first."""
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    found: list[str] = []
    for block in reversed(path[start:]):
        if isinstance(block, Loop) and block.lineno < line:
            found += _exits(source, block, line)
        elif isinstance(block, Function):
            found += _early_returns(source, block, line)
    return list(dict.fromkeys(found))[:_LIMIT]


def ends_early(source: ParsedSource, line: int) -> bool:
    """Whether a `break`, `return` or `raise` in the loop at a line, or in one within it, may end it."""
    return any(
        isinstance(node, (ast.Break, ast.Return, ast.Raise))
        for loop in path_to(source.tree, line)
        if isinstance(loop, Loop) and loop.lineno == line
        for node, _ in _statements(loop)
    )


def _early_returns(source: ParsedSource, function: Function, line: int) -> Iterator[str]:
    """Those before the line, in none of its loops."""
    for node, is_nested in _statements(function):
        if isinstance(node, ast.Return) and not is_nested and node_line(node) < line:
            condition = say_condition(source, node.lineno, function)
            if condition and not _is_in_another_branch(source, node.lineno, line):
                yield f"a `return` {condition} skips this call"


def _exits(source: ParsedSource, loop: Loop, line: int) -> Iterator[str]:
    for node, is_nested in _statements(loop):
        match node:
            case ast.Continue() if not is_nested and node.lineno < line:
                word = "continue"
            case ast.Break() if not is_nested:
                word = "break"
            case ast.Return():
                word = "return"
            case _:
                continue
        condition = say_condition(source, node.lineno, loop)
        if condition and not _is_in_another_branch(source, node.lineno, line):
            reported = (
                "skips this call" if word == "continue" else f"ends the loop (line {loop.lineno})"
            )
            yield f"a `{word}` {condition} {reported}"


def _is_in_another_branch(source: ParsedSource, exit_line: int, line: int) -> bool:
    """Whether the line is not reached anyway where the exit is: one in an `if`, the other in its `else`."""
    ways = path_to(source.tree, exit_line), path_to(source.tree, line)
    common = [one for one, two in zip(*ways, strict=False) if one is two]
    return any(
        isinstance(block, ast.If)
        and is_in_body(block, exit_line) is not is_in_body(block, line)
        and node_line(block) >= line
        for block in common
    )


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


def retry_around(source: ParsedSource, line: int) -> str:
    """'`for attempt in range(3)` (line 13)': a loop that makes the call again after an error; ''."""
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    loop: Loop | None = None
    for block in path[start:]:
        if isinstance(block, Loop):
            loop = block
        elif isinstance(block, ast.Try) and loop is not None:
            if not (_is_in_block(block, line) and _goes_on(block)):
                continue
            return f"`{line_text(source, loop.lineno).removesuffix(':')}` (line {loop.lineno})"
    return ""


def _is_in_block(block: ast.Try, line: int) -> bool:
    return block.body[0].lineno <= line <= node_line(block.body[-1])


def _goes_on(block: ast.Try) -> bool:
    """Whether a handler leaves neither the loop nor the function."""
    leaving = (ast.Raise, ast.Return, ast.Break)
    return any(not isinstance(handler.body[-1], leaving) for handler in block.handlers)
