"""An error of a line that was given data: which function of the program made them, through its callers.

y comes from `yield x[first:last], encode(codes)` (line 35 of birds.py): see what rank 1 is given there
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from distdbg.render.enclosing import (
    ParsedFiles,
    ParsedSource,
    argument_for,
    bound_at,
    called_name,
    function_at,
    own_nodes,
    parameter_of,
    path_to,
    quote_line,
)
from distdbg.render.generators import StackLine, defined, lines_of_stack
from distdbg.render.hints.case import Case, program_files

#: Errors that a value may be the reason of.
_OF_VALUES: Final = frozenset(("IndexError", "KeyError", "ValueError"))
_MAX_CALLERS: Final = 4


def by_loop_over_data(case: Case) -> str:
    """The values that the line was given are of a loop over what a function of the program yields."""
    log = case.session.ranks.get(case.root.ranks[0]) if case.root.ranks else None
    reported = next((one for one in case.reported if one.is_cause and one.frames), None)
    if log is None or reported is None or log.exit_type not in _OF_VALUES:
        return ""
    stack, files = lines_of_stack(case.source, reported), program_files(case)
    if not stack:
        return ""
    found: dict[tuple[str, int], list[str]] = {}
    statement = path_to(stack[0].source.tree, stack[0].line)[-1]
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        for name in (one.id for one in call.args if isinstance(one, ast.Name)):
            if (place := _made_at(name, stack, files)) is not None:
                found.setdefault(place, []).append(name)
    if len(found) != 1:
        return ""  # several: any may be the one
    (file, line), names = next(iter(found.items()))
    names = list(dict.fromkeys(names))
    come = "comes" if len(names) == 1 else "come"
    return (
        f"{' and '.join(names)} {come} from {quote_line(files[file], file, line)}: see what {case.who} "
        "is given there"
    )


def _made_at(name: str, stack: Sequence[StackLine], files: ParsedFiles) -> tuple[str, int] | None:
    """The file and the line of the one `yield` that gives a name its value, seen from the innermost line."""
    for at, place in enumerate(stack[:_MAX_CALLERS]):
        function = function_at(place.source, place.line)
        scope = function or place.source.tree
        lines = [line for line in bound_at(scope, name) if line <= place.line]
        if lines:
            return _yielded(place.source, max(lines), files)
        parameter = None if function is None else parameter_of(function, name)
        if parameter is None or at + 1 >= len(stack):
            return None
        caller = stack[at + 1]
        given = None
        for node in ast.walk(path_to(caller.source.tree, caller.line)[-1]):
            if isinstance(node, ast.Call) and called_name(node) == parameter.function:
                given = argument_for(node, parameter)
        if not isinstance(given, ast.Name):
            return None
        name = given.id
    return None


def _yielded(source: ParsedSource, line: int, files: ParsedFiles) -> tuple[str, int] | None:
    """Find the `yield` behind a name that a loop binds, over a call of a function of the program."""
    loop = path_to(source.tree, line)[-1]
    if not isinstance(loop, ast.For) or loop.lineno != line:
        return None
    for call in (node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)):
        if (known := defined(called_name(call), files)) is not None:
            file, function = known
            made = [node.lineno for node in own_nodes(function) if isinstance(node, ast.Yield)]
            return (file, made[0]) if len(made) == 1 else None
    return None
