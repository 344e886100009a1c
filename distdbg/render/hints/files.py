"""A file for which ranks sleep, and which another rank makes behind the op that it is in.

rank 0 makes the file that ranks 1-3 wait for by `os.replace(scratch, path)` (line 45 of tokens.py), behind
the op that it is in (tokens.py:44): make it before
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.wording import say_ranks, verb
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.enclosing import Function, ParsedSource, line_text, node_line, path_to
from distdbg.render.finding_stacks import ReportedStack
from distdbg.render.hints.case import FILE_LOOP, Case, is_left_out

_MAKES_FILE: Final = frozenset(
    ("copy", "copyfile", "dump", "mkdir", "makedirs", "move", "open", "rename", "replace", "save",
     "savez", "symlink", "tofile", "touch", "write_bytes", "write_text")
)  # fmt: skip


def by_file_made_later(case: Case) -> str:
    """The rank that makes the file waits behind it for those that sleep until it is there."""
    late = next((one for one in case.reported if one.is_cause and not is_left_out(one)), None)
    waiting = [one for one in case.reported if not one.is_cause]
    if late is None or not any(FILE_LOOP.fullmatch(n) for n in late.frames[0].notes):
        return ""
    for at, outer in enumerate(late.frames):
        source = case.source.parsed(outer.frame.file)
        if source is None:
            return ""
        names = set(_names_given(source, outer.frame.line)) if at else set()
        for stack in waiting:
            for one in stack.frames if names else ():
                if _function(one.frame) != _function(outer.frame):
                    continue
                if line := _makes_later(source, one.frame.line, names):
                    return _say(late, stack, source, line, one.frame)
    return ""


def _function(frame: RecordedFrame) -> tuple[str, str]:
    return frame.file, frame.function


def _say(
    late: ReportedStack, stack: ReportedStack, source: ParsedSource, line: int, frame: RecordedFrame
) -> str:
    file = os.path.basename(frame.file)
    return (
        f"{say_ranks(stack.ranks, 3)} {verb(stack.ranks, 'makes', 'make')} the file that "
        f"{say_ranks(late.ranks, 3)} {verb(late.ranks, 'waits', 'wait')} for by `{line_text(source, line)}` "
        f"(line {line} of {file}), behind the op that {verb(stack.ranks, 'it is', 'they are')} in "
        f"({file}:{frame.line}): make it before"
    )


def _names_given(source: ParsedSource, line: int) -> Iterator[str]:
    """The variables that the calls at a line get."""
    statement = path_to(source.tree, line)[-1]
    for node in ast.walk(statement) if isinstance(statement, ast.stmt) else ():
        if isinstance(node, ast.Call) and node.lineno <= line <= node_line(node):
            given = (*node.args, *(word.value for word in node.keywords))
            yield from (one.id for one in given if isinstance(one, ast.Name))


def _makes_later(source: ParsedSource, line: int, names: set[str]) -> int:
    """The first line behind it, in its own block, of a call that makes a file and gets one of these; 0."""
    path = path_to(source.tree, line)
    if len(path) < 2 or not any(isinstance(one, Function) for one in path):
        return 0
    for block in (getattr(path[-2], "body", []), getattr(path[-2], "orelse", [])):
        if path[-1] not in block:
            continue
        for later in block[block.index(path[-1]) + 1 :]:
            for node in ast.walk(later):
                if isinstance(node, ast.Call) and _makes_file(node) and names & _names_in(node):
                    return node.lineno
    return 0


def _makes_file(call: ast.Call) -> bool:
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _MAKES_FILE


def _names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
