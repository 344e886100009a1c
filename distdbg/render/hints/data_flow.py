"""Where an argument comes from: assignments, attributes, what functions return, the callers. Pure.

    for given in trace_back([(stack, expr)], files):     the expression; what gives it its value; ...

An expression is known with the lines from which it is reached: its own, and those of the callers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from distdbg.render.enclosing import (
    CallParameter,
    Function,
    ParsedFiles,
    argument_for,
    bound_at,
    called_name,
    lines_of_attribute,
    own_nodes,
    parameter_of,
    path_to,
)
from distdbg.render.generators import StackLine, defined

#: An expression, and the lines from which it is reached: its own, and those of the callers.
Given = tuple[Sequence[StackLine], ast.AST]


#: Assignments, and calls, between an argument and the line that is told of it.
_MAX_HOPS: Final = 6


def trace_back(
    given: Iterable[Given],
    files: ParsedFiles,
    is_final: Callable[[ast.AST], bool] = lambda expr: False,
) -> Iterator[list[Given]]:
    """The expressions, then what gives them their values, and so on, but for final ones; pure."""
    passed: set[tuple[str, int, str]] = set()
    for _ in range(_MAX_HOPS):
        given = [one for one in given if not is_final(one[1])]
        yield given
        given = [
            far
            for at, expr in given
            for far in (*_origins(at, expr, passed), *_returned(at, expr, files))
        ]


def _origins(
    stack: Sequence[StackLine], expr: ast.AST, passed: set[tuple[str, int, str]]
) -> Iterator[Given]:
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


def _returned(stack: Sequence[StackLine], expr: ast.AST, files: ParsedFiles) -> Iterator[Given]:
    """What functions of the program return that an expression calls."""
    for call in (node for node in own_nodes_of(expr) if isinstance(node, ast.Call)):
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
            value = argument_for(call, parameter)
            yield from () if value is None else (value,)


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


def own_nodes_of(expr: ast.AST) -> Iterator[ast.AST]:
    """Walk an expression, or a statement that has no others in it."""
    if not (isinstance(expr, ast.stmt) and hasattr(expr, "body")):
        yield from ast.walk(expr)
