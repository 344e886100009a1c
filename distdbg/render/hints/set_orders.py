"""A loop over a set of texts, whose order is another one in each process.

`for name in names` (line 16 of job.py) goes over a set, made by `a = set(names)` (line 11 of thaw.py): texts
in a set have another order in each process: sort it
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from distdbg.render.enclosing import (
    called_name,
    line_of_file,
    line_text,
    node_line,
    path_to,
    quote_line,
)
from distdbg.render.generators import StackLine
from distdbg.render.hints.case import Case, program_files, stack_lines
from distdbg.render.hints.data_flow import Given, trace_back

_MAKES: Final = ("set", "frozenset", "difference", "intersection", "symmetric_difference", "union")
#: What makes an order that is the same everywhere.
_ORDERS: Final = ("min", "max", "sorted", "sort")


def by_set_order(case: Case) -> str:
    """The loop around the call, and the line that makes what it goes over."""
    stack = stack_lines(case)
    files = program_files(case)
    for at, place in enumerate(stack):
        for loop in _loops(place):
            inside = [place._replace(line=loop.lineno), *stack[at + 1 :]]
            for given in trace_back([(inside, loop.iter)], files, _is_ordered):
                made = next((one for one in given if _is_set(one[1])), None)
                if made is not None:
                    head = line_text(place.source, loop.lineno).removesuffix(":")
                    return (
                        f"`{head}` ({line_of_file(place.file, loop.lineno)}) goes over a set"
                        f"{_made_at(made, loop)}: "
                        "texts in a set have another order in each process: sort it"
                    )
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
    return f", made by {quote_line(place.source, place.file, line)}"
