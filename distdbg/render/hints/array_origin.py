"""The line of a function of the program that makes the array whose size differs.

see what sets the size of the arrays on rank 1: sums is made by `sums = np.zeros(last - first)` (line 18
of days.py) in by_day()
"""

from __future__ import annotations

import ast
from typing import Final

from distdbg.render.enclosing import (
    Function,
    bound_before,
    called_name,
    own_nodes,
    path_to,
    quote_line,
)
from distdbg.render.generators import StackLine, defined
from distdbg.render.hints.case import Case, program_files, stack_lines

#: Functions that hand on what others return.
_MAX_CALLS: Final = 3


def by_function(case: Case) -> str:
    """What the call was given is what a function returned: where that has made it."""
    stack = stack_lines(case)
    if not stack or not case.root.advice:
        return ""
    files, place = program_files(case), stack[0]
    call = next(
        (n for n in ast.walk(_statement(place)) if isinstance(n, ast.Call) and n.args), None
    )
    given = call.args[0] if call is not None else None
    if not isinstance(given, ast.Name):
        return ""
    name, function = given.id, ""
    for _ in range(_MAX_CALLS):
        lines = bound_before(place.source, place.line, name)
        if len(lines) != 1:
            return ""
        line = lines[0]
        called = _called_for(_statement(place._replace(line=line)), name)
        known = None if called is None else defined(called_name(called[0]), files)
        if called is None or known is None:
            if not function:
                return ""
            made = quote_line(place.source, place.file, line)
            return f"{case.root.advice}: {given.id} is made by {made} in {function}()"
        file, inner = known
        returned = _returned(inner, called[1])
        if not isinstance(returned, ast.Name):
            return ""
        name, function = returned.id, inner.name
        place = StackLine(file, returned.lineno, files[file])
    return ""


def _statement(place: StackLine) -> ast.AST:
    return path_to(place.source.tree, place.line)[-1]


def _called_for(statement: ast.AST, name: str) -> tuple[ast.Call, int] | None:
    """The call that gives a name its value, and which of several values it is; -1: the only one."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=ast.Call() as call):
            return call, -1
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call() as call):
            for at, one in enumerate(names):
                if isinstance(one, ast.Name) and one.id == name:
                    return call, at
    return None


def _returned(function: Function, at: int) -> ast.expr | None:
    returns = [node.value for node in own_nodes(function) if isinstance(node, ast.Return)]
    value = returns[0] if len(returns) == 1 else None
    if at < 0:
        return value
    return value.elts[at] if isinstance(value, ast.Tuple) and at < len(value.elts) else None
