"""Gradients that a rank reduces less often than others, since it alone decides when DDP's no_sync() holds.

each rank decides by itself when DDP reduces, by `quiet = nullcontext() if full else model.no_sync()` (line 22
of accumulate.py), where `full = self.tokens >= self.budget` (line 21): all ranks have to decide that alike
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from distdbg.diagnose.traits import FactKind
from distdbg.render.enclosing import (
    ParsedSource,
    bound_before,
    called_name,
    function_at,
    line_text,
    path_to,
)
from distdbg.render.hints.case import Case
from distdbg.render.where import place_of

_NO_SYNC: Final = "no_sync"
#: The words of torch's DDP for the reduction of gradients.
_BUCKET: Final = "DDP bucket"


class _Decision(NamedTuple):
    line: int
    test: ast.expr


def by_no_sync(case: Case) -> str:
    """Some ranks are in a reduction of DDP, and a condition of their own skips it."""
    if not _is_in_bucket(case):
        return ""
    for stack in case.reported:
        for one in stack.frames:
            source = case.source.parsed(one.frame.file)
            for found in () if source is None else _decisions(source, one.frame.line):
                assert source is not None
                said = _say(source, one.frame.file, found)
                if said:
                    return said
    return ""


def _is_in_bucket(case: Case) -> bool:
    ranks = {*case.root.ranks, *case.root.victims}
    ops = [place.op for rank in ranks if (place := place_of(case.session, rank)) is not None]
    ops += [f.op for f in case.root.evidence if f.kind is FactKind.WAIT and f.op is not None]
    comms = (case.session.comms[case.session.ranks[op.rank].ops.comm[op.at]] for op in ops)
    return any(comm.startswith(_BUCKET) for comm in comms)


def _decisions(source: ParsedSource, line: int) -> Iterator[_Decision]:
    """`a if test else model.no_sync()`, and `if test:` around one, in the function of a line."""
    function = function_at(source, line)
    if function is None:
        return
    for node in ast.walk(function):
        match node:
            case ast.IfExp(test=test, body=one, orelse=other):
                if _has_no_sync(one) is not _has_no_sync(other):
                    yield _Decision(node.lineno, test)
            case ast.If(test=test, body=inner, orelse=rest):
                if any(map(_has_no_sync, inner)) is not any(map(_has_no_sync, rest)):
                    yield _Decision(node.lineno, test)


def _has_no_sync(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and called_name(n) == _NO_SYNC for n in ast.walk(node))


def _say(source: ParsedSource, file: str, found: _Decision) -> str:
    """'' for a test that counts rounds: that is alike on all ranks."""
    tests: list[ast.AST] = [found.test]
    where = ""
    for name in (n.id for n in ast.walk(found.test) if isinstance(n, ast.Name)):
        for at in bound_before(source, found.line, name)[-1:]:
            tests.append(path_to(source.tree, at)[-1])
            where = f", where `{line_text(source, at)}` (line {at})"
    if any(isinstance(n, ast.Mod) for one in tests for n in ast.walk(one)):
        return ""
    text = line_text(source, found.line).removesuffix(":")
    return (
        f"each rank decides by itself when DDP reduces, by `{text}` (line {found.line} of "
        f"{os.path.basename(file)}){where}: all ranks have to decide that alike"
    )
