"""A rank that exchanges messages with others and not with the one that waits for it: what it goes over.

see what children() gives on rank 0 (lines 12-25 of tree.py): `for child in children(rank, size)` (line 30 of
tree.py) has no round for rank 4
"""

from __future__ import annotations

import ast
import os
from typing import Final

from distdbg.diagnose.traits import StackRole
from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    bound_before,
    called_name,
    line_text,
    node_line,
    path_to,
)
from distdbg.render.generators import defined
from distdbg.render.hints.case import Case, program_files

_PEERS: Final = ("dst", "src")


def by_loop_over_peers(case: Case) -> str:
    """The loop gives the call its peer: what it goes over lacks one."""
    for stack in case.reported:
        if stack.role is not StackRole.OTHER_PEERS or not stack.frames:
            continue
        frame = stack.frames[0].frame
        source = case.source.parsed(frame.file)
        loop = None if source is None else _loop_of_peer(source, frame.line)
        missing = next((f.ranks[1] for f in case.root.evidence if f.is_for_others), None)
        if source is None or loop is None or missing is None:
            continue
        name = os.path.basename(frame.file)
        head = (
            f"`{line_text(source, loop.lineno).removesuffix(':')}` (line {loop.lineno} of {name})"
        )
        why = f"{head} has no round for rank {missing}"
        made = _made_by(source, loop)
        known = None if made is None else defined(called_name(made), program_files(case))
        if known is None:
            text = ast.unparse(loop.iter)
            return f"see what {text} holds on {case.who}: {why}"
        file, function = known
        lines = f"lines {function.lineno}-{node_line(function)} of {os.path.basename(file)}"
        return f"see what {function.name}() gives on {case.who} ({lines}): {why}"
    return ""


def _loop_of_peer(source: ParsedSource, line: int) -> ast.For | None:
    """The innermost loop whose variable is in the call's dst or src."""
    path = path_to(source.tree, line)
    calls = [n for n in ast.walk(path[-1]) if isinstance(n, ast.Call)]
    given = [word.value for call in calls for word in call.keywords if word.arg in _PEERS]
    given += [call.args[1] for call in calls if len(call.args) > 1]
    names = {n.id for one in given for n in ast.walk(one) if isinstance(n, ast.Name)}
    for block in reversed(path):
        if isinstance(block, Function):
            break
        if isinstance(block, ast.For):
            targets = {n.id for n in ast.walk(block.target) if isinstance(n, ast.Name)}
            if targets & names:
                return block
    return None


def _made_by(source: ParsedSource, loop: ast.For) -> ast.Call | None:
    """The call that gives what a loop goes over, itself or by a name."""
    match loop.iter:
        case ast.Call():
            return loop.iter
        case ast.Name(id=name):
            for at in bound_before(source, loop.lineno, name)[-1:]:
                value = getattr(path_to(source.tree, at)[-1], "value", None)
                return value if isinstance(value, ast.Call) else None
    return None
