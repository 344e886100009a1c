"""What a call is given comes from a line that is not the same on all ranks.

It chooses by the rank, or stands under a condition that asks for it:

the arguments at job.py:13 depend on the rank: `rows = [1, 4] if rank == 0 else [1, 3]` (line 11 of job.py)

the group at job.py:16 depends on the rank: `order = [a, b]` (line 11 of job.py), under `if rank == 0` (line
10)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final

from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    line_text,
    node_line,
    path_to,
    quote_line,
)
from distdbg.render.generators import StackLine
from distdbg.render.hints.case import RANK, Case, place_of_stack, program_files, stack_lines
from distdbg.render.hints.data_flow import own_nodes_of, trace_back

#: Which ranks take part is no matter of what they give.
_NOT_GIVEN: Final = ("group", "async_op")


def by_rank_choice(case: Case) -> str:
    """The nearest line that chooses by the rank."""
    return _nearest(case, _chosen)


def by_rank_number(case: Case) -> str:
    """The nearest line that counts with the rank, or takes what a table has for it."""
    return _nearest(case, _counted)


def by_group_choice(case: Case) -> str:
    """The nearest line by which the rank chooses the group of a call, or the order of groups."""
    return _nearest(case, _chosen, is_of_group=True) or _nearest(case, _counted, is_of_group=True)


def _nearest(
    case: Case, tell: Callable[[StackLine, ast.AST], str], *, is_of_group: bool = False
) -> str:
    stack = stack_lines(case)
    if not stack:
        return ""
    place = place_of_stack(next(one for one in case.reported if one.frames))
    what, verb = ("the group", "depends") if is_of_group else ("the arguments", "depend")
    given = [(stack, one) for one in _arguments(stack[0], is_of_group=is_of_group)]
    for near in trace_back(given, program_files(case)):
        if found := next(filter(None, (tell(at[0], expr) for at, expr in near)), ""):
            return f"{what} at {place} {verb} on the rank: {found}"
    return ""


def _arguments(place: StackLine, *, is_of_group: bool) -> list[ast.AST]:
    """Return the group that the calls at a line are given, or all else that they are given."""
    statement = path_to(place.source.tree, place.line)[-1]
    return [
        value
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and call.lineno <= place.line <= node_line(call)
        for value in (
            *(() if is_of_group else call.args),
            *(
                word.value
                for word in call.keywords
                if (word.arg == "group" if is_of_group else word.arg not in _NOT_GIVEN)
            ),
        )
    ]


def _chosen(place: StackLine, expr: ast.AST) -> str:
    """'`x = 1 if rank == 0 else 2` (line 3 of a.py)', or that it stands under such a condition; ''."""
    source = place.source
    if any(isinstance(node, ast.IfExp) and _asks(node.test) for node in own_nodes_of(expr)):
        return _say(place, expr)
    if not isinstance(expr, ast.stmt):
        return ""
    # Only the line itself is known of an attribute.
    here = path_to(source.tree, place.line) if place.line != expr.lineno else []
    for block in reversed(path_to(source.tree, expr.lineno)[:-1]):
        if isinstance(block, Function):
            break
        if isinstance(block, ast.If) and _asks(block.test) and block not in here:
            return f"{_say(place, expr)}, under {_condition(source, block, expr.lineno)}"
    return ""


def _counted(place: StackLine, expr: ast.AST) -> str:
    """The same of `table[rank]`, and of a number that is made of the rank."""
    value = getattr(expr, "value", None) if isinstance(expr, ast.stmt) else expr
    is_number = isinstance(value, ast.BinOp) and not any(
        isinstance(node, ast.Call) and not _asks(node) for node in ast.walk(value)
    )
    taken = (
        node for node in own_nodes_of(expr) if isinstance(node, ast.Subscript) and _asks(node.slice)
    )
    if any(taken) or (is_number and value is not None and _asks(value)):
        return _say(place, expr)
    return ""


def _say(place: StackLine, expr: ast.AST) -> str:
    line: int = getattr(expr, "lineno", place.line)
    return quote_line(place.source, place.file, line)


def _asks(test: ast.AST) -> bool:
    return RANK.search(ast.unparse(test)) is not None


def _condition(source: ParsedSource, block: ast.If, line: int) -> str:
    head = f"`{line_text(source, block.lineno).removesuffix(':')}` (line {block.lineno})"
    is_else = bool(block.orelse) and line >= block.orelse[0].lineno
    return f"`else` of {head}" if is_else else head
