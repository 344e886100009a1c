"""Where init_process_group gets a number from that does not fit the job.

init_process_group(world_size=6), but 5 ranks were started (WORLD_SIZE=5); see `return self.nodes *
self.slots_per_node` (line 16 of cluster.py)
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Final

from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.enclosing import (
    ParsedSource,
    bound_before,
    imported_beside,
    line_text,
    node_line,
    path_to,
)
from distdbg.render.hints.case import Case

_CALL: Final = "init_process_group"
#: The number of the argument, where it is given without its name.
_PLACES: Final = {"world_size": 3, "rank": 4}


def by_world_size(case: Case) -> str:
    """More ranks are waited for than were started."""
    return _with_origin(case, "world_size")


def by_rank(case: Case) -> str:
    """Two processes say that they are the same rank."""
    return _with_origin(case, "rank")


def _with_origin(case: Case, name: str) -> str:
    """The hint of the finding, and the line that sets the argument; '' where no one line does."""
    for stack in case.reported[:1]:
        for one in stack.frames[:1]:
            source = case.source.parsed(one.frame.file)
            given = None if source is None else _given(source, one.frame.line, name)
            if source is None or given is None:
                return ""
            found = [*_origins(case, source, one.frame, name, given)]
            if len(found) != 1:
                return ""
            file, text, line = found[0]
            return f"{case.root.advice}; see `{text}` (line {line} of {os.path.basename(file)})"
    return ""


def _given(source: ParsedSource, line: int, name: str) -> ast.expr | None:
    """The argument of the call at a line."""
    statement = path_to(source.tree, line)[-1]
    for node in ast.walk(statement) if isinstance(statement, ast.stmt) else ():
        if not isinstance(node, ast.Call) or not node.lineno <= line <= node_line(node):
            continue
        called = node.func
        if _CALL not in (getattr(called, "attr", ""), getattr(called, "id", "")):
            continue
        named = {word.arg: word.value for word in node.keywords}
        place = _PLACES[name]
        if name in named:
            return named[name]
        is_plain = len(node.args) > place and not any(isinstance(a, ast.Starred) for a in node.args)
        return node.args[place] if is_plain else None
    return None


def _origins(
    case: Case, source: ParsedSource, frame: RecordedFrame, argument: str, given: ast.expr
) -> Iterator[tuple[str, str, int]]:
    """File, text and number of each line that may set it."""
    file, line, _ = frame
    match given:
        case ast.Name(id=name):
            for at in bound_before(source, line, name):
                yield file, line_text(source, at), at
        case ast.Attribute(attr=name):
            for other in dict.fromkeys((file, *imported_beside(source, file))):
                parsed = source if other == file else case.source.parsed(other)
                if parsed is not None:
                    yield from ((other, line_text(parsed, at), at) for at in _members(parsed, name))
        case _:
            yield file, f"{argument}={ast.unparse(given)}", given.lineno


def _members(source: ParsedSource, name: str) -> Iterator[int]:
    """The lines that give a member of a class its value: what a property returns, or a field's default."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for one in node.body:
            match one:
                case ast.FunctionDef(name=known) if known == name:
                    yield from (
                        inner.lineno for inner in ast.walk(one) if isinstance(inner, ast.Return)
                    )
                case ast.AnnAssign(target=ast.Name(id=known)) if known == name:
                    yield one.lineno
                case ast.Assign(targets=[ast.Name(id=known)]) if known == name:
                    yield one.lineno
    stores = (node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute))
    for node in stores:
        if node.attr == name and isinstance(node.ctx, ast.Store):
            yield node.lineno
