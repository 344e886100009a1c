"""A path past the call that ends something: the task_done() of what a queue gave, the cancel of a timer.

an item was taken at writer.py:31 without its task_done() (line 41): see the `continue` under `except
ValueError` (line 36), which skips it

its timer is set at reader.py:18: the `raise` (line 23) skips its cancel (line 24), which belongs into a
`finally`
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    line_text,
    node_line,
    own_nodes,
    path_to,
    say_condition,
)
from distdbg.render.hints.case import Case, place_of_stack

_JOIN: Final = re.compile(r"(?:^|[\s(=])([\w.]+)\.join\(\)")
_CANCELS: Final = ("alarm", "setitimer")
_Exit = ast.Continue | ast.Raise | ast.Return


def by_unfinished_item(case: Case) -> str:
    """A rank waits in `queue.join()`, and the thread that takes from that queue waits for the next item."""
    mine = [stack for stack in case.reported if stack.is_cause and stack.frames]
    joined = (_JOIN.search(stack.frames[0].text) for stack in mine)
    names = {found[1].rpartition(".")[2] for found in joined if found is not None}
    for stack in mine:
        frame = stack.frames[0]
        source = case.source.parsed(frame.frame.file)
        taken = re.search(r"([\w.]+)\.get\(", frame.text)
        if source is None or taken is None or taken[1].rpartition(".")[2] not in names:
            continue
        said = _say_unfinished(source, frame.frame.line, taken[1], place_of_stack(stack))
        if said:
            return said
    return ""


def _say_unfinished(source: ParsedSource, line: int, queue: str, place: str) -> str:
    function = _function_at(source, line)
    if function is None:
        return ""
    ended = _calls(function, lambda call: ast.unparse(call.func) == f"{queue}.task_done")
    if not ended:
        return f"nothing calls {queue}.task_done() for what is taken at {place}"
    for end in ended:
        if _is_in_finally(source, end):
            return ""
        # A `return` ends the thread, which still waits.
        for node in _exits_between(function, line, end):
            if isinstance(node, ast.Continue):
                under = say_condition(source, node.lineno, function)
                return (
                    f"an item was taken at {place} without its task_done() (line {end}): "
                    f"see the `continue` {under}, which skips it"
                )
        for handler in _handlers_of(function, end):
            if not _calls(handler, lambda call: ast.unparse(call.func) == f"{queue}.task_done"):
                head = line_text(source, handler.lineno).removesuffix(":")
                return (
                    f"an item was taken at {place} without its task_done() (line {end}): "
                    f"see `{head}` (line {handler.lineno}), which goes on without it"
                )
    return ""


def past_cancel(source: ParsedSource, file: str, line: int) -> str:
    """What is said of a timer that a line sets, whose function cancels it only on some paths; ''."""
    function = _function_at(source, line)
    if function is None:
        return ""
    cancelled = [end for end in _calls(function, _is_cancel) if end > line]
    if not cancelled or any(_is_in_finally(source, end) for end in cancelled):
        return ""
    exits = _exits_between(function, line, cancelled[0])
    node = next((one for one in exits if not isinstance(one, ast.Continue)), None)
    if node is None:
        return ""
    word = "raise" if isinstance(node, ast.Raise) else "return"
    return (
        f"its timer is set at {os.path.basename(file)}:{line}: the `{word}` (line {node.lineno}) skips its "
        f"cancel (line {cancelled[0]}), which belongs into a `finally`"
    )


def _is_cancel(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    last = call.args[-1] if call.args else None
    return name in _CANCELS and isinstance(last, ast.Constant) and not last.value


def _function_at(source: ParsedSource, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = [node for node in path_to(source.tree, line) if isinstance(node, Function)]
    return functions[-1] if functions else None


def _calls(scope: ast.AST, is_wanted: Callable[[ast.Call], bool]) -> list[int]:
    calls = (node for node in own_nodes(scope) if isinstance(node, ast.Call))
    return sorted(node.lineno for node in calls if is_wanted(node))


def _exits_between(function: ast.AST, line: int, end: int) -> Iterator[_Exit]:
    found = [node for node in own_nodes(function) if isinstance(node, _Exit)]
    for node in sorted(found, key=lambda one: one.lineno):
        if line < node.lineno < end:
            yield node


def _handlers_of(function: ast.AST, line: int) -> Iterator[ast.ExceptHandler]:
    """What handles an error that comes up before a line in the body of a `try`."""
    for node in own_nodes(function):
        if isinstance(node, ast.Try) and node.body[0].lineno <= line <= node_line(node.body[-1]):
            yield from node.handlers


def _is_in_finally(source: ParsedSource, line: int) -> bool:
    return any(
        isinstance(node, ast.Try)
        and node.finalbody
        and node.finalbody[0].lineno <= line <= node_line(node.finalbody[-1])
        for node in path_to(source.tree, line)
    )
