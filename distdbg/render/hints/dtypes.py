"""An array whose dtype nobody has given: NumPy makes float64 of it, and the other ranks have another one.

np.zeros without a dtype is float64: give it float32, as the other ranks have (line 11 of aggregate.py)
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.render.enclosing import Function, ParsedSource, bound_at, imported_beside
from distdbg.render.hints.case import Case
from distdbg.render.where import place_of

#: What makes an array of float64 unless it is told otherwise, and which argument is the dtype.
_MAKERS: Final = {"empty": 1, "eye": 3, "linspace": 5, "ones": 1, "zeros": 1}
_MODULES: Final = ("np", "numpy")
_MAX_RANKS: Final = 16
_ODD: Final = "float64"
#: What an argument was set by, and what a function that gave it returns.
_SET_BY: Final = re.compile(r"(\w+ = .*) \(line (\d+)\)")
_RETURNED: Final = re.compile(r"`(return .*?)` \(line (\d+)\)")


def by_default_dtype(case: Case) -> str:
    """Arrays differ in dtype, and the rank with float64 has it from a NumPy call that was given none."""
    own, others = (_dtypes(case, ranks) for ranks in (case.root.ranks, case.root.victims))
    if own != {_ODD} or len(others) != 1 or _ODD in others:
        return ""  # the others have float64, or there are several
    other = others.pop()
    for one in case.reported[0].frames if case.reported else ():
        source = case.source.parsed(one.frame.file)
        if source is None:
            continue
        for note in one.notes:
            for file, line, maker in _makers_of_note(case, source, one.frame.file, note):
                return (
                    f"np.{maker} without a dtype is {_ODD}: give it {other}, as the other ranks have "
                    f"(line {line} of {os.path.basename(file)})"
                )
    return ""


def _dtypes(case: Case, ranks: Sequence[int]) -> set[str]:
    """Return the dtypes of the calls that the mismatch is about."""
    places = (place_of(case.session, rank) for rank in ranks[:_MAX_RANKS])
    ops = (place.op for place in places if place is not None)
    return {case.session.forms[case.session.ranks[op.rank].ops.form[op.at]].dtype for op in ops}


def _makers_of_note(
    case: Case, source: ParsedSource, file: str, note: str
) -> Iterator[tuple[str, int, str]]:
    """File, line and name of the calls that a note leads to."""
    if found := _SET_BY.fullmatch(note):
        value = _value_of(found[1])
        if maker := _maker(value):
            yield file, int(found[2]), maker
        elif isinstance(value, ast.Call):
            yield from _makers_in(case, source, file, _name(value.func))
    for found in _RETURNED.finditer(note):
        if maker := _maker(_value_of(found[1].replace("return ", "x = ", 1))):
            yield file, int(found[2]), maker


def _makers_in(
    case: Case, source: ParsedSource, file: str, name: str
) -> Iterator[tuple[str, int, str]]:
    """What the one function of this name returns, in this file or in those that it imports."""
    for path in (file, *imported_beside(source, file)):
        parsed = case.source.parsed(path)
        defined = [
            node
            for node in (ast.walk(parsed.tree) if parsed is not None else ())
            if isinstance(node, Function) and node.name == name
        ]
        if len(defined) == 1:
            for node in ast.walk(defined[0]):
                if not isinstance(node, ast.Return) or node.value is None:
                    continue
                for value, line in _values(defined[0], node):
                    if maker := _maker(value):
                        yield path, line, maker
            return


def _values(function: Function, returned: ast.Return) -> Iterator[tuple[ast.expr, int]]:
    """What is returned, or what set the variable that is."""
    assert returned.value is not None
    yield returned.value, returned.lineno
    if isinstance(returned.value, ast.Name):
        lines = {at for at in bound_at(function, returned.value.id) if at < returned.lineno}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and lines and node.lineno == max(lines):
                yield node.value, node.lineno


def _value_of(text: str) -> ast.expr | None:
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, IndexError):  # one of several lines
        return None
    return statement.value if isinstance(statement, ast.Assign) else None


def _maker(value: ast.expr | None) -> str:
    """'zeros' of `np.zeros(n)`; '' for what is given a dtype, and for all else."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return ""
    module, name = value.func.value, value.func.attr
    if not isinstance(module, ast.Name) or module.id not in _MODULES or name not in _MAKERS:
        return ""
    has_dtype = len(value.args) > _MAKERS[name] or any(
        word.arg in ("dtype", None) for word in value.keywords
    )
    return "" if has_dtype else name


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
