"""A condition or a loop that random numbers decide, which are not the same on all ranks.

each rank draws numbers of its own in `if random.random() < 0.3` (line 12 of job.py), as nothing seeds
`random`: seed it alike on all ranks, or draw on one and broadcast

`active = net.draw(rng)` (line 14 of job.py) needs the same numbers on all ranks, and crop() draws from that
generator as often as its data ask (line 22 of images.py): give crop() another one than that of line 31
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from distdbg.render.enclosing import (
    Function,
    Loop,
    ParsedFiles,
    ParsedSource,
    bound_at,
    called_name,
    function_at,
    is_in_body,
    line_of_file,
    line_text,
    node_line,
    own_nodes,
    path_to,
)
from distdbg.render.generators import (
    Generator,
    Seeding,
    StackLine,
    defined,
    drawn_from,
    draws_of,
    given_in,
    lines_of_stack,
    parameter_given,
)
from distdbg.render.hints.case import Case, program_files

#: Frames of a stack.
MAX_FRAMES: Final = 4
#: How the names of ops begin that make a value the same on all ranks.
_SHARES: Final = ("all_", "broadcast", "scatter")


class _Kind(StrEnum):
    TEST = "test"
    ROUNDS = "rounds"  # what a loop goes over
    VALUE = "value"  # of a name in one of these


class Decider(NamedTuple):
    """What decides whether, or how often, a rank comes to a line."""

    kind: _Kind
    line: int
    expr: ast.expr
    at: int = 0
    """The frame of the stack."""


def by_own_draw(case: Case) -> str:
    """A generator that no rank, or each by its rank, has seeded decides whether a rank comes to its call."""
    files = program_files(case)
    for stack, one in _all_deciders(case):
        for found in _drawn_by(one, stack, files):
            if found.seeding is Seeding.ALIKE:
                continue
            place, short = stack[one.at], f"`{found.name}`"
            why = f"as nothing seeds {short}"
            if found.line:
                where = _where(found.line, found.file, place.file)
                by = (
                    "gives it no seed" if found.seeding is Seeding.UNSET else "seeds it by the rank"
                )
                why = f"as `{line_text(files[found.file], found.line)}` ({where}) {by}"
            return (
                f"each rank draws numbers of its own in `{_text(place.source, one.line)}` "
                f"({line_of_file(place.file, one.line)}), {why}: seed it alike on all ranks, or draw on one "
                "and broadcast"
            )
    return ""


def by_shared_draw(case: Case) -> str:
    """Name a function that draws from a generator seeded alike on all ranks as often as its data ask."""
    files = program_files(case)
    for stack, one in _all_deciders(case):
        place = stack[one.at]
        given = (found for found, _ in given_in(one.expr, stack, one.at, files))
        for found in (*drawn_from(one.expr, stack, one.at, files), *given):
            if found.seeding is not Seeding.ALIKE or not found.line:
                continue
            if (other := _draws_by_data(place, one, found, files)) is not None:
                name, file, line = other
                return (
                    f"`{_text(place.source, one.line)}` ({line_of_file(place.file, one.line)}) needs the "
                    f"same numbers on all ranks, and {name}() draws from that generator as often as its data "
                    f"ask ({_where(line, file, place.file)}): give {name}() another one than that of "
                    f"{_where(found.line, found.file, place.file)}"
                )
    return ""


def _drawn_by(one: Decider, stack: Sequence[StackLine], files: ParsedFiles) -> Iterator[Generator]:
    """By which the number of rounds, or the outcome of a condition, is drawn: not the order of a loop."""
    if one.kind is _Kind.ROUNDS and not _is_range(one.expr):
        return
    yield from drawn_from(one.expr, stack, one.at, files)
    if one.kind is not _Kind.TEST:
        return  # what a call returns to which it was given may be anything
    for found, call in given_in(one.expr, stack, one.at, files):
        if (function := defined(called_name(call), files)) is not None:
            name = parameter_given(function[1], call, found.name)
            if name and any(True for _ in draws_of(function[1], name)):
                yield found


def _is_range(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and called_name(expr) == "range"


def _all_deciders(case: Case) -> Iterator[tuple[list[StackLine], Decider]]:
    for reported in case.reported:
        stack = lines_of_stack(case.source, reported)
        for at in range(min(len(stack), MAX_FRAMES)):
            for one in deciders(stack[at]):
                yield stack, one._replace(at=at)


def deciders(place: StackLine) -> Iterator[Decider]:
    """The conditions and loops around a line, what leaves these loops, and what gave their names a value."""
    path = path_to(place.source.tree, place.line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=0)
    for block in reversed(path[start:]):
        found: list[Decider] = []
        match block:
            case ast.If(test=test) | ast.While(test=test):
                found.append(Decider(_Kind.TEST, block.lineno, test))
            case ast.For(iter=over):
                found.append(Decider(_Kind.ROUNDS, block.lineno, over))
        if isinstance(block, Loop | Function):
            found += _exits(block, place.line)
        for one in found:
            yield one
            yield from _behind(place, path[start], one)


def _exits(block: Loop | Function, line: int) -> Iterator[Decider]:
    """`if test: continue`, and what else leaves the loop, or the function before the line."""
    for node in own_nodes(block):
        if not isinstance(node, ast.If) or is_in_body(node, line):
            continue
        ends: tuple[type[ast.stmt], ...] = (ast.Return,) if node.lineno < line else ()
        if isinstance(block, Loop):
            ends = (ast.Break, ast.Return, *((ast.Continue,) if node.lineno < line else ()))
        if any(isinstance(inner, ends) for inner in node.body):
            yield Decider(_Kind.TEST, node.lineno, node.test)


def _behind(place: StackLine, scope: ast.AST, one: Decider) -> Iterator[Decider]:
    """What gave the names of a test their values, as long as no op has made these the same since."""
    is_number = one.kind is not _Kind.ROUNDS or _is_range(one.expr)
    kind = _Kind.VALUE if is_number else _Kind.ROUNDS
    for name in dict.fromkeys(n.id for n in ast.walk(one.expr) if isinstance(n, ast.Name)):
        before = [at for at in bound_at(scope, name) if at < one.line]
        if not before or _is_shared(scope, name, max(before), one.line):
            continue
        statement = path_to(place.source.tree, max(before))[-1]
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            yield Decider(kind, statement.lineno, statement.value)


def _is_shared(scope: ast.AST, name: str, since: int, until: int) -> bool:
    """Whether an op was given it in between."""
    return any(
        isinstance(node, ast.Call)
        and since <= node.lineno <= until
        and called_name(node).startswith(_SHARES)
        and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
        for node in own_nodes(scope)
    )


def _draws_by_data(
    place: StackLine, one: Decider, found: Generator, files: ParsedFiles
) -> tuple[str, str, int] | None:
    """Another function that is given the generator, and the line where it draws until its data fit."""
    scope = function_at(place.source, one.line) or place.source.tree
    mine = {id(node) for node in ast.walk(one.expr)}
    for call in own_nodes(scope):
        if not isinstance(call, ast.Call) or id(call) in mine:
            continue
        if (known := defined(called_name(call), files)) is None:
            continue
        file, function = known
        name = parameter_given(function, call, found.name)
        if name and (line := _draw_until(function, name)):
            return function.name, file, line
    return None


def _draw_until(function: Function, name: str) -> int:
    """The line of a draw in a loop that ends by a condition; 0: it draws as often on all ranks."""
    draws = {draw.lineno for draw in draws_of(function, name)}
    for loop in own_nodes(function):
        is_open = isinstance(loop, ast.While) or (
            isinstance(loop, ast.For)
            and any(isinstance(n, ast.Break | ast.Return) for n in own_nodes(loop))
        )
        within = [at for at in draws if isinstance(loop, Loop) and _is_in(loop, at)]
        if is_open and within:
            return min(within)
    return 0


def _is_in(loop: Loop, line: int) -> bool:
    return loop.lineno <= line <= node_line(loop)


def _text(source: ParsedSource, line: int) -> str:
    return line_text(source, line).removesuffix(":")


def _where(line: int, file: str, known: str) -> str:
    """'line 31', with its file where that is another one than the one that was named."""
    return f"line {line}" if file == known else line_of_file(file, line)
