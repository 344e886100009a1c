"""A file that was there, and is gone when the rank renames or removes it: another rank has the same name.

another rank may have renamed or removed that file first: `temporary = path.with_suffix(".tmp")` (line 9 of
cache.py) gives all of them one name; put the rank, or a unique part, into it
"""

from __future__ import annotations

import ast
import re
from typing import Final

from distdbg.render.enclosing import (
    ParsedSource,
    bound_at,
    called_name,
    function_at,
    line_of_file,
    line_text,
    path_to,
    quote_line,
)
from distdbg.render.hints.case import RANK, Case, program_files

_REMOVES: Final = ("rmdir", "rmtree", "unlink")
_MAX_REMOVALS: Final = 2
_TAKES: Final = ("move", "remove", "rename", "replace", "rmdir", "unlink")
#: In what gives each process a name of its own.
_UNIQUE: Final = re.compile(
    r"getpid|uuid|tempfile|mkstemp|mkdtemp|token_hex|hostname", re.IGNORECASE
)


def by_one_name(case: Case) -> str:
    """A FileNotFoundError of os.replace, os.remove and their like, by the line that makes the name."""
    reported = next((one for one in case.reported if one.is_cause and one.frames), None)
    log = case.session.ranks.get(case.root.ranks[0]) if case.root.ranks else None
    if reported is None or log is None or log.exit_type != "FileNotFoundError":
        return ""
    frame = reported.frames[0].frame
    source = case.source.parsed(frame.file)
    name = None if source is None else _taken(source, frame.line)
    if source is None or name is None:
        return ""
    scope = function_at(source, frame.line) or source.tree
    lines = [at for at in bound_at(scope, name) if at <= frame.line]
    head = "another rank may have renamed or removed that file first"
    if not lines:
        return f"{head}: see that each rank has a name of its own for {name}"
    text = line_text(source, max(lines))
    if RANK.search(text) or _UNIQUE.search(text):
        return ""
    where = line_of_file(frame.file, max(lines))
    return f"{head}: `{text}` ({where}) gives all of them one name; put the rank, or a unique part, into it"


def by_removal(case: Case) -> str:
    """A FileNotFoundError of a line that reads: where the program removes files."""
    reported = next((one for one in case.reported if one.is_cause and one.frames), None)
    log = case.session.ranks.get(case.root.ranks[0]) if case.root.ranks else None
    if reported is None or log is None or log.exit_type != "FileNotFoundError":
        return ""
    here = reported.frames[0].frame
    found = [
        (file, source, line)
        for file, source in program_files(case).items()
        for line in _removals(source)
        if (file, line) != (here.file, here.line)
    ]
    if not 0 < len(found) <= _MAX_REMOVALS:
        return ""
    places = " and ".join(quote_line(source, file, line) for file, source, line in found)
    return f"see whether {places} has removed it, on any rank, or whether who writes it had not done so yet"


def _removals(source: ParsedSource) -> list[int]:
    found = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="remove")):
                found.add(node.lineno)
            case ast.Call() if called_name(node) in _REMOVES:
                found.add(node.lineno)
    return sorted(found)


def _taken(source: ParsedSource, line: int) -> str | None:
    """The variable with the file: `os.replace(temporary, path)`, `temporary.rename(path)`."""
    for node in ast.walk(path_to(source.tree, line)[-1]):
        if not isinstance(node, ast.Call) or called_name(node) not in _TAKES:
            continue
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os" | "shutil")), args=[ast.Name(id=name), *_]
            ):
                return name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name not in (
                "os",
                "shutil",
            ):
                return name
    return None
