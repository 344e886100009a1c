"""A function or a loop that some ranks have left while others are in it, and a lock file that nobody removes.

see whether rank 1 left fit() by the `break` under `if patience.exhausted(loss)` (line 37 of fit.py) before
the others: all ranks have to decide that alike

see whether `for x, y in loader` (line 27 of job.py) makes as many rounds on rank 1, which left it, as on
ranks 0,2

ranks 0-1,3 wait until a file is gone: see whether rank 2 went on without removing it, by the `return` under
`if entry["digest"] == digest` (line 32 of catalog.py); `with` or `finally` removes it on each way out
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import permutations, product
from typing import Final

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.wording import say_ranks, verb
from distdbg.render.enclosing import (
    Function,
    Loop,
    ParsedSource,
    function_at,
    line_text,
    node_line,
    path_to,
    say_condition,
)
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.hints.case import ENDS, UNDER, Case, is_left_out
from distdbg.render.loop_exits import loop_exits

_FILE_IS_THERE: Final = re.compile(r"`except (?:FileExistsError|\(.*FileExistsError.*)")
_REMOVES: Final = re.compile(r"release|unlock|unlink|remove|rmdir|rmtree")


def by_left_function(case: Case) -> str:
    """Ranks have left a function or a loop in which others still are: by an exit, or after fewer rounds."""
    mine, others = case.sides()
    if not case.root.ranks:
        return ""
    is_deadlock = case.root.kind is FindingKind.DEADLOCK  # all of them are its cause
    for one, other in permutations(mine, 2) if is_deadlock else product(mine, others):
        parted = _where_they_part(one, other)
        if parted is not None and (found := _say_left(case, one, other, *parted)):
            return found
    return ""


def _where_they_part(
    one: ReportedStack, other: ReportedStack
) -> tuple[ReportedFrame, ReportedFrame, int] | None:
    """Their frames of the innermost function that both are in, and how many more the other one has."""
    pairs = zip(reversed(one.frames), reversed(other.frames), strict=False)
    for at, (mine, theirs) in enumerate(pairs):
        if (mine.frame.file, mine.frame.function) != (theirs.frame.file, theirs.frame.function):
            return None
        if mine.frame.line != theirs.frame.line:
            return mine, theirs, len(other.frames) - 1 - at
    return None


def _say_left(
    case: Case,
    gone: ReportedStack,
    other: ReportedStack,
    mine: ReportedFrame,
    theirs: ReportedFrame,
    inner: int,
) -> str:
    source, who = case.source.parsed(theirs.frame.file), say_ranks(gone.ranks, 3)
    if source is None or not _is_behind(source, mine.frame.line, theirs.frame.line):
        return ""
    # What the frame that both are in calls there is what was left, or the loop that stands there.
    left = other.frames[: inner + 1]
    for one in left:
        parsed = case.source.parsed(one.frame.file)
        for note in loop_exits(parsed, one.frame.line) if parsed is not None else ():
            if found := ENDS.fullmatch(note):
                name = (
                    f"{one.frame.function.rpartition('.')[2]}()"
                    if one is not theirs
                    else "the loop"
                )
                file = os.path.basename(one.frame.file)
                return (
                    f"see whether {who} left {name} by the {found[1]} ({found[2]} of {file}) before "
                    "the others: all ranks have to decide that alike"
                )
    for one in left:
        parsed = case.source.parsed(one.frame.file)
        loop = None if parsed is None else _innermost_loop(parsed, one.frame.line)
        if parsed is not None and loop is not None:
            head = line_text(parsed, loop.lineno).removesuffix(":")
            return (
                f"see whether `{head}` (line {loop.lineno} of {os.path.basename(one.frame.file)}) makes as "
                f"many rounds on {who}, which left it, as on {say_ranks(other.ranks, 3)}"
            )
    return ""


def _is_behind(source: ParsedSource, line: int, before: int) -> bool:
    """Whether who is at `line` has passed `before`: not in one loop, and in no other branch."""
    if line <= before:
        return False
    here, there = path_to(source.tree, line), path_to(source.tree, before)
    here_within = [id(node) for node in here]
    for node in _in_function(there):
        if isinstance(node, Loop) and id(node) in here_within:
            return False
        if isinstance(node, ast.If | ast.ExceptHandler | ast.match_case):
            return False  # the rank may have come by another branch
    return True


def _in_function(path: list[ast.AST]) -> list[ast.AST]:
    """The part of a path within its innermost function."""
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    return path[start + 1 :]


def _innermost_loop(source: ParsedSource, line: int) -> ast.stmt | None:
    loops = [
        node
        for node in _in_function(path_to(source.tree, line))
        if isinstance(node, Loop) and node.lineno <= line
    ]
    return loops[-1] if loops else None


def by_lock_file(case: Case) -> str:
    """Ranks sleep until a file is gone that another rank, or an earlier run, has left there."""
    for stack in case.reported:
        if not stack.is_cause or is_left_out(stack) or not _waits_for_no_file(stack):
            continue
        past = sorted({rank for one in case.reported if not one.is_cause for rank in one.ranks})
        who = (
            f"{say_ranks(stack.ranks, 3)} {verb(stack.ranks, 'waits', 'wait')} until a file is gone"
        )
        if not past:
            return f"{who}; if no rank holds it, an earlier run has left it behind"
        way = next((f", by the {found}" for found in _ways_out(case, stack)), "")
        return (
            f"{who}: see whether {say_ranks(past, 3)} went on without removing it{way}; `with` or `finally` "
            "removes it on each way out"
        )
    return ""


def _waits_for_no_file(stack: ReportedStack) -> bool:
    notes = [note for one in stack.frames[:1] for note in one.notes]
    conditions = filter(None, map(UNDER.fullmatch, notes))
    return any(_FILE_IS_THERE.match(found[1]) for found in conditions)


def _ways_out(case: Case, stack: ReportedStack) -> Iterator[str]:
    """The `return`s between where the callers take the file and where they remove it."""
    for one in stack.frames[1:3]:
        source = case.source.parsed(one.frame.file)
        function = None if source is None else function_at(source, one.frame.line)
        if source is None or function is None:
            continue
        removed = [
            node_line(node)
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and _REMOVES.search(ast.unparse(node.func))
        ]
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and one.frame.line < node.lineno < max(
                removed, default=0
            ):
                where = say_condition(source, node.lineno, function)
                if found := UNDER.fullmatch(where):
                    file = os.path.basename(one.frame.file)
                    yield f"`return` under {found[1]} ({found[2]} of {file})"
