"""A loop over a set of texts, whose order is another one in each process.

`for name in names` (line 16 of job.py) goes over a set, made by `a = set(names)` (line 11 of thaw.py): texts
in a set have another order in each process: sort it
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Final

from distdbg.render.enclosing import called_name, line_text, node_line, path_to
from distdbg.render.generators import StackLine, lines_of_stack
from distdbg.render.hints.case import Case, program_files
from distdbg.render.hints.data_flow import Given, origins, returned

_MOST_HOPS: Final = 6
_MAKES: Final = ("set", "frozenset", "difference", "intersection", "symmetric_difference", "union")
#: What makes an order that is the same everywhere.
_ORDERS: Final = ("min", "max", "sorted", "sort")


def by_set_order(case: Case) -> str:
    """The loop around the call, and the line that makes what it goes over."""
    told = next((one for one in case.told if one.frames), None)
    stack = [] if told is None else lines_of_stack(case.source, told)
    files = program_files(case)
    for at, place in enumerate(stack):
        for loop in _loops(place):
            inside = [place._replace(line=loop.lineno), *stack[at + 1 :]]
            given: list[Given] = [(inside, loop.iter)]
            passed: set[tuple[str, int, str]] = set()
            for _ in range(_MOST_HOPS):
                given = [one for one in given if not _is_ordered(one[1])]
                made = next((one for one in given if _is_set(one[1])), None)
                if made is not None:
                    head = line_text(place.source, loop.lineno).removesuffix(":")
                    return (
                        f"`{head}` ({_in(place, loop)}) goes over a set{_made_at(made, loop)}: "
                        "texts in a set have another order in each process: sort it"
                    )
                given = [
                    far
                    for lines, expr in given
                    for far in (*origins(lines, expr, passed), *returned(lines, expr, files))
                ]
    return ""


def _loops(place: StackLine) -> Iterator[ast.For]:
    for block in reversed(path_to(place.source.tree, place.line)):
        if isinstance(block, ast.For) and block.body[0].lineno <= place.line <= node_line(block):
            yield block


def _is_ordered(expr: ast.AST) -> bool:
    calls = (node for node in ast.walk(_value(expr)) if isinstance(node, ast.Call))
    return any(called_name(call) in _ORDERS for call in calls)


def _is_set(expr: ast.AST) -> bool:
    """Whether its value is one, and not what is taken from one."""
    value = _value(expr)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub | ast.BitOr | ast.BitAnd):
        return _is_set(value.left) or _is_set(value.right)
    if isinstance(value, ast.Call) and called_name(value) in ("list", "tuple", "enumerate", "iter"):
        return any(map(_is_set, value.args))
    is_made = isinstance(value, ast.Call) and called_name(value) in _MAKES
    return is_made or isinstance(value, ast.Set | ast.SetComp)


def _value(expr: ast.AST) -> ast.AST:
    value = getattr(expr, "value", None)
    return value if isinstance(expr, ast.stmt) and isinstance(value, ast.AST) else expr


def _made_at(made: Given, loop: ast.For) -> str:
    place, expr = made[0][0], made[1]
    line: int = getattr(expr, "lineno", place.line)
    if line == loop.lineno:
        return ""
    text = line_text(place.source, line)
    return f", made by `{text}` (line {line} of {os.path.basename(place.file)})"


def _in(place: StackLine, loop: ast.For) -> str:
    return f"line {loop.lineno} of {os.path.basename(place.file)}"
