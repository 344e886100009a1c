"""What the variables around a call held on each rank, where its error file says so. Pure.

    step = 14, batches = 15 on rank 0 and 16 on ranks 1-3

Those of the loops and conditions that the line stands in; of a line that raised by itself, its own too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks
from distdbg.record.entries import RecordedFrame
from distdbg.render.enclosing import Function, Loop, ParsedSource, path_to

_MOST_NAMES: Final = 5
_MOST_SIDES: Final = 3
_MOST_LOST: Final = 2
#: What a loop goes over, or takes: that matters where a line fails with it.
_ARRAY: Final = re.compile(r"\w+\[")


def say_left_values(
    session: Session,
    ranks: Sequence[int],
    frame: RecordedFrame,
    source: ParsedSource,
    *,
    of_line: bool,
) -> str:
    """'step = 14, batches = 15'; '' where nothing is known, or the line uses no variable."""
    known = {
        rank: values
        for rank in ranks
        if (values := session.ranks[rank].left_values.get((frame.file, frame.line)))
    }
    if not known:
        return ""
    names = names_around(source, frame.line, of_line=of_line)
    # What is not a number is news wherever it stands.
    lost = (name for values in known.values() for name, text in values.items() if text == "= nan")
    names = [*dict.fromkeys((*names, *islice(lost, _MOST_LOST)))]
    said = [text for name in names if (text := _say(name, known, len(ranks), of_line=of_line))]
    return ", ".join(said[:_MOST_NAMES])


def _say(name: str, known: Mapping[int, Mapping[str, str]], count: int, *, of_line: bool) -> str:
    sides: dict[str, list[int]] = {}
    for rank, values in known.items():
        if name in values and (of_line or not _ARRAY.match(values[name])):
            sides.setdefault(values[name], []).append(rank)
    is_own_number = all(text == f"= {rank}" for text, ranks in sides.items() for rank in ranks)
    if len(sides) > _MOST_SIDES or is_own_number:
        return ""
    if len(sides) == 1 and sum(map(len, sides.values())) == count:
        return f"{name} {next(iter(sides))}"
    return "; ".join(f"{name} {text} on {say_ranks(ranks)}" for text, ranks in sides.items())


def names_around(source: ParsedSource, line: int, *, of_line: bool) -> list[str]:
    """Of the line, where that is asked for, and of the loops and conditions around it: 'n', 'self.n'."""
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=-1)
    inner = path[-1]
    heads: list[ast.AST] = []
    if of_line and not isinstance(inner, ast.If | Loop | Function | ast.Module):
        heads.append(inner)
    for node in reversed(path[start + 1 :]):
        match node:
            case ast.If(test=test) | ast.While(test=test):
                heads.append(test)
            case ast.For(target=target, iter=of) | ast.AsyncFor(target=target, iter=of):
                heads += [target, of]
    return list(dict.fromkeys(name for head in heads for name in _names(head)))


def _names(node: ast.AST) -> Iterator[str]:
    left = [node]
    while left:  # no recursion: an expression may be nested deeply
        one = left.pop()
        match one:
            case ast.Attribute(value=ast.Name(id=of), attr=name):
                yield f"{of}.{name}"
                if of == "self":
                    continue
            case ast.Subscript(value=ast.Name(id=of), slice=ast.Constant(value=str(key))):
                yield f'{of}["{key}"]'
                continue
            case ast.Name(id=name):
                yield name
            case ast.Lambda():
                continue
        left += [*ast.iter_child_nodes(one)][::-1]
