"""What a call is given comes from a line that is not the same on all ranks.

It chooses by the rank, or stands under a condition that asks for it:

the arguments at job.py:13 depend on the rank: `rows = [1, 4] if rank == 0 else [1, 3]` (line 11 of job.py)

the group at job.py:16 depends on the rank: `order = [a, b]` (line 11 of job.py), under `if rank == 0` (line
10)
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from distdbg.diagnose.wording import short_site
from distdbg.render.enclosing import (
    CallParameter,
    Function,
    ParsedSource,
    bound_at,
    called_name,
    line_text,
    lines_of_attribute,
    node_line,
    own_nodes,
    parameter_of,
    path_to,
)
from distdbg.render.generators import StackLine, defined, lines_of_stack
from distdbg.render.hints.case import RANK, Case, program_files

#: Assignments, and calls, between the call and the line that is told.
_MOST_HOPS: Final = 6
#: Which ranks take part is no matter of what they give.
_NOT_GIVEN: Final = ("group", "async_op")

#: An expression, and the lines from which it is reached: its own, and those of the callers.
_Given = tuple[Sequence[StackLine], ast.AST]


def by_rank_choice(case: Case) -> str:
    """The nearest line that chooses by the rank."""
    return _nearest(case, _chosen)


def by_rank_number(case: Case) -> str:
    """The nearest line that counts with the rank, or takes what a table has for it."""
    return _nearest(case, _counted)


def by_group_choice(case: Case) -> str:
    """The nearest line by which the rank chooses the group of a call, or the order of groups."""
    return _nearest(case, _chosen, is_of_group=True)


def _nearest(
    case: Case, tell: Callable[[StackLine, ast.AST], str], *, is_of_group: bool = False
) -> str:
    told = next((one for one in case.told if one.frames), None)
    stack = [] if told is None else lines_of_stack(case.source, told)
    if told is None or not stack:
        return ""
    place = short_site(str(told.frames[0].frame)).partition(" (")[0]
    files = program_files(case)
    what, verb = ("the group", "depends") if is_of_group else ("the arguments", "depend")
    given: list[_Given] = [(stack, one) for one in _arguments(stack[0], is_of_group=is_of_group)]
    passed: set[tuple[str, int, str]] = set()
    for _ in range(_MOST_HOPS):
        if found := next(filter(None, (tell(at[0], expr) for at, expr in given)), ""):
            return f"{what} at {place} {verb} on the rank: {found}"
        given = [
            far
            for at, expr in given
            for far in (*_origins(at, expr, passed), *_returned(at, expr, files))
        ]
    return ""


def _arguments(place: StackLine, *, is_of_group: bool) -> list[ast.AST]:
    """Of the calls at a line: the group alone, or what is given but that."""
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


def _origins(
    stack: Sequence[StackLine], expr: ast.AST, passed: set[tuple[str, int, str]]
) -> Iterator[_Given]:
    """What gives the names of an expression their values: statements, and arguments of the callers."""
    place = stack[0]
    path = path_to(place.source.tree, place.line)
    function = next((one for one in reversed(path) if isinstance(one, Function)), None)
    for name in _names(expr):
        if (place.file, place.line, name) in passed:
            continue
        passed.add((place.file, place.line, name))
        if name.startswith("self."):
            for line in lines_of_attribute(place.source, place.line, name.removeprefix("self.")):
                yield _made_in(place, line, stack), path_to(place.source.tree, line)[-1]
            continue
        scope = function or place.source.tree
        lines = sorted({line for line in _set_at(scope, name) if line <= place.line})
        for line in lines:
            yield stack, path_to(place.source.tree, line)[-1]
        parameter = None if lines or function is None else parameter_of(function, name)
        if parameter is not None and len(stack) > 1:
            called = parameter.function
            if called == "__init__":
                called = _class_around(path)
            for value in _argument_of(stack[1], called, parameter):
                yield stack[1:], value


def _set_at(scope: ast.AST, name: str) -> Iterator[int]:
    """The lines that give it a value, or call a method of its: shapes.reverse()."""
    yield from bound_at(scope, name)
    for node in own_nodes(scope):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=known)))) if (
                known == name
            ):
                yield node.lineno


def _returned(
    stack: Sequence[StackLine], expr: ast.AST, files: Mapping[str, ParsedSource]
) -> Iterator[_Given]:
    """What functions of the program return that an expression calls."""
    for call in (node for node in _own(expr) if isinstance(node, ast.Call)):
        if (known := defined(called_name(call), files)) is None:
            continue
        file, function = known
        for node in own_nodes(function):
            if isinstance(node, ast.Return) and node.value is not None:
                caller = stack[0]._replace(line=call.lineno)
                yield [StackLine(file, node.lineno, files[file]), caller, *stack[1:]], node


def _made_in(place: StackLine, line: int, stack: Sequence[StackLine]) -> Sequence[StackLine]:
    """The lines from which one of another method is reached: of `__init__` the one that makes the object."""
    path = path_to(place.source.tree, line)
    method = next((one for one in reversed(path) if isinstance(one, Function)), None)
    there = place._replace(line=line)
    if method is None or method.name != "__init__":
        return [there]
    made = (
        one._replace(line=call.lineno)
        for one in stack
        for call in ast.walk(one.source.tree)
        if isinstance(call, ast.Call) and called_name(call) == _class_around(path)
    )
    found = list(dict.fromkeys((one.file, one.line) for one in made))
    if len(found) != 1:
        return [there]
    source = next(one.source for one in stack if one.file == found[0][0])
    return [there, StackLine(*found[0], source)]


def _class_around(path: Sequence[ast.AST]) -> str:
    return next((one.name for one in reversed(path) if isinstance(one, ast.ClassDef)), "")


def _argument_of(place: StackLine, called: str, parameter: CallParameter) -> Iterator[ast.AST]:
    """What a line gives a parameter of the function that it calls."""
    for call in ast.walk(path_to(place.source.tree, place.line)[-1]):
        if isinstance(call, ast.Call) and called_name(call) == called:
            words = {word.arg: word.value for word in call.keywords}
            if parameter.name in words:
                yield words[parameter.name]
            elif 0 <= parameter.place < len(call.args):
                yield call.args[parameter.place]


def _names(expr: ast.AST) -> Iterator[str]:
    """Its variables and those of the object around it; of a block its head alone."""
    heads = [expr]
    if isinstance(expr, ast.For | ast.AsyncFor):
        heads = [expr.iter]
    elif isinstance(expr, ast.With | ast.AsyncWith):
        heads = [item.context_expr for item in expr.items]
    elif isinstance(expr, ast.stmt) and hasattr(expr, "body"):
        return
    for node in (one for head in heads for one in ast.walk(head)):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                yield f"self.{name}"
            case ast.Name(id=name, ctx=ast.Load()) if name != "self":
                yield name


def _chosen(place: StackLine, expr: ast.AST) -> str:
    """'`x = 1 if rank == 0 else 2` (line 3 of a.py)', or that it stands under such a condition; ''."""
    source = place.source
    if any(isinstance(node, ast.IfExp) and _asks(node.test) for node in _own(expr)):
        return _say(place, expr)
    if not isinstance(expr, ast.stmt):
        return ""
    # Of an attribute the line itself is all that is known.
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
    taken = (node for node in _own(expr) if isinstance(node, ast.Subscript) and _asks(node.slice))
    if any(taken) or (is_number and value is not None and _asks(value)):
        return _say(place, expr)
    return ""


def _own(expr: ast.AST) -> Iterator[ast.AST]:
    """Of a statement that has others in it, nothing."""
    if not (isinstance(expr, ast.stmt) and hasattr(expr, "body")):
        yield from ast.walk(expr)


def _say(place: StackLine, expr: ast.AST) -> str:
    line: int = getattr(expr, "lineno", place.line)
    file = os.path.basename(place.file)
    return f"`{line_text(place.source, line)}` (line {line} of {file})"


def _asks(test: ast.AST) -> bool:
    return RANK.search(ast.unparse(test)) is not None


def _condition(source: ParsedSource, block: ast.If, line: int) -> str:
    head = f"`{line_text(source, block.lineno).removesuffix(':')}` (line {block.lineno})"
    is_else = bool(block.orelse) and line >= block.orelse[0].lineno
    return f"`else` of {head}" if is_else else head
