"""A condition or a loop that each rank decides by its own clock.

each rank asks its own clock, in `return time.monotonic() - self.last >= self.every` (line 18 of saver.py) of
`if saver.due()` (line 38 of job.py): let one rank decide, and broadcast that
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.render.enclosing import (
    Function,
    ParsedFiles,
    called_name,
    line_of_file,
    line_text,
    own_nodes,
)
from distdbg.render.generators import StackLine, defined, lines_of_stack
from distdbg.render.hints.case import Case, is_left_out, program_files
from distdbg.render.hints.randomness import MAX_FRAMES, Decider, deciders

_CLOCKS: Final = frozenset(
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
) | {"now", "utcnow"}  # fmt: skip


def by_own_clock(case: Case) -> str:
    """One side of the ranks stands under it, and the other does not."""
    files = program_files(case)
    stacks = [one for one in case.reported if not is_left_out(one)]
    found = [dict(_all_of(lines_of_stack(case.source, one))) for one in stacks]
    for at, mine in enumerate(found):
        for key, (place, one) in mine.items():
            is_of_all = all(key in other for other in found)
            if not is_of_all and (clock := _clock_in(place, one, files)) and found[at - 1]:
                file, line = clock
                text = line_text(place.source, one.line).removesuffix(":")
                head = f"`{text}` ({line_of_file(place.file, one.line)})"
                what = head
                if clock != (place.file, one.line):
                    text = line_text(files[file], line).removesuffix(":")
                    what = f"`{text}` ({line_of_file(file, line)}) of {head}"
                return f"each rank asks its own clock, in {what}: let one rank decide, and broadcast that"
    return ""


def _all_of(
    stack: Sequence[StackLine],
) -> Iterator[tuple[tuple[str, int], tuple[StackLine, Decider]]]:
    for place in stack[:MAX_FRAMES]:
        for one in deciders(place):
            yield (place.file, one.line), (place, one)


def _clock_in(place: StackLine, one: Decider, files: ParsedFiles) -> tuple[str, int] | None:
    """Where it is read: there, or in a function of the program that is called there."""
    for call in (node for node in ast.walk(one.expr) if isinstance(node, ast.Call)):
        if _is_clock(call):
            return place.file, one.line
        if (known := defined(called_name(call), files)) is not None:
            file, function = known
            if line := _read_in(function):
                return file, line
    return None


def _read_in(function: Function) -> int:
    """The line of a function that returns what it reads off a clock, or compares it; 0."""
    reported = (
        node
        for node in own_nodes(function)
        if isinstance(node, ast.Return | ast.Compare)
        and any(isinstance(inner, ast.Call) and _is_clock(inner) for inner in ast.walk(node))
    )
    return min((node.lineno for node in reported), default=0)


def _is_clock(call: ast.Call) -> bool:
    return called_name(call) in _CLOCKS and len(call.args) <= 1
