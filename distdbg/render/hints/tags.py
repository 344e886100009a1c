"""What the tag of a message is made from, which is another one than that line has used before.

see what the tag at halo.py:32 is made from: on rank 0 it was 1 before, and is 2 now; it comes from
`tag = self.tag(name)` (line 23 of halo.py), `return sorted(self.fields).index(name)` (line 20)
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.traits import subject_of
from distdbg.diagnose.wording import short_site
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    bound_before,
    line_text,
    node_line,
    path_to,
)
from distdbg.render.hints.case import Case

#: The number of the argument, where it is given without its name.
_PLACES: Final = {"isend": 3, "send": 3, "irecv": 3, "recv": 3}


def by_origin(case: Case) -> str:
    """The line that gives it its value, and what the function returns that is called there."""
    place = subject_of(case.root.advice)
    frame = _frame(case, place) if place else None
    source = None if frame is None else case.source.parsed(frame.file)
    given = None if source is None or frame is None else _given(source, frame.line)
    if frame is None or source is None or given is None:
        return ""
    lines = [*_lines(source, frame.line, given)]
    if not lines:
        return ""
    file = os.path.basename(frame.file)
    said = [
        f"`{line_text(source, line)}` (line {line}{f' of {file}' if not at else ''})"
        for at, line in enumerate(lines)
    ]
    return f"{case.root.advice}; it comes from {', '.join(said)}"


def _frame(case: Case, place: str) -> RecordedFrame | None:
    """Where a rank of the cause is in a message."""
    for rank in case.root.ranks:
        ops = case.session.ranks[rank].ops
        for at in reversed(range(len(ops))):
            frame = case.session.site_of(OpRef(rank, at))
            if frame is not None and short_site(str(frame)).partition(" (")[0] == place:
                return frame
    return None


def _given(source: ParsedSource, line: int) -> ast.expr | None:
    statement = path_to(source.tree, line)[-1]
    for node in ast.walk(statement) if isinstance(statement, ast.stmt) else ():
        if not isinstance(node, ast.Call) or not node.lineno <= line <= node_line(node):
            continue
        place = _PLACES.get(_called(node))
        named = {word.arg: word.value for word in node.keywords}
        if place is not None and "tag" in named:
            return named["tag"]
        if place is not None and len(node.args) > place:
            return node.args[place]
    return None


def _lines(source: ParsedSource, line: int, given: ast.expr) -> Iterator[int]:
    """Where the name is bound, if that is one line, and what the function called there returns."""
    value: ast.AST = given
    if isinstance(given, ast.Name):
        bound = bound_before(source, line, given.id)
        if len(bound) != 1:
            return
        yield bound[0]
        statement = path_to(source.tree, bound[0])[-1]
        value = _value_of(statement, given.id)
    elif not isinstance(given, ast.Constant):
        yield given.lineno
    if isinstance(value, ast.Call):
        yield from _returned(source, _called(value))


def _value_of(statement: ast.AST, name: str) -> ast.AST:
    """What an assignment gives this one of its names; the statement where that is not plain."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=value):
            return value
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name) and target.id == name:
                    return value
    return statement


def _returned(source: ParsedSource, name: str) -> Iterator[int]:
    defined = [n for n in ast.walk(source.tree) if isinstance(n, Function) and n.name == name]
    if len(defined) == 1:
        returns = [node.lineno for node in ast.walk(defined[0]) if isinstance(node, ast.Return)]
        if len(returns) == 1:
            yield returns[0]


def _called(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
