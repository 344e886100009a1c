"""Why a rank did not use a part of its model, or DDP did not reduce: the condition or the call in the source.

see `if objects.any()` (line 16 of model.py), under which self.box is called: rank 2 did not take
that branch in step 9; or find_unused_parameters=True for DistributedDataParallel (line 35 of job.py)

DDP reduced no gradient in 60 steps from step 41 on: `model.module.with_rebuilt(inputs)` (line 20 of job.py)
goes past its forward; call the DDP object itself
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from distdbg.diagnose.find.not_reduced import PAST_FORWARD, unreduced_steps
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.traits import FactKind
from distdbg.record.printable import shorten
from distdbg.render.enclosing import (
    Function,
    ParsedSource,
    imported_beside,
    lines_of_attribute,
    path_to,
    say_condition,
)
from distdbg.render.hints.case import Case
from distdbg.render.loop_exits import loop_exits

_SAID: Final = re.compile(r"(.+) \((line \d+)\)")
_SKIPS: Final = " skips this call"
#: What DDP's constructor calls its ops.
_OF_CONSTRUCTOR: Final = (
    "DDP compares the shapes of parameters",
    "DDP broadcasts parameters and buffers",
)
_MAX_FILES: Final = 32
_MAX_CALLS: Final = 2
_MAX_CALL: Final = 60
#: Methods of a `.module` that run no layer.
_NO_LAYERS: Final = re.compile(
    r"state_dict|load|save|param|buffer|modules|children|^(?:train|eval|to|cpu|cuda|half|float|double|bfloat16"
    r"|apply|requires_grad_|zero_grad|compile|register_\w+|extra_repr|get_\w+|set_\w+|reset\w*)$"
)


class _Condition(NamedTuple):
    """Under which the model comes to a part of it, or by which it does not."""

    text: str
    """'`if objects.any()` (line 16 of model.py)'."""
    part: str
    """'self.box'."""
    skips: bool = False


def by_condition(case: Case) -> str:
    """The model calls that part under a condition; or at least where its DDP was made."""
    facts = case.root.evidence
    unused = next((fact for fact in facts if fact.kind is FactKind.NO_GRADIENT), None)
    if unused is None:
        return ""
    where, step = _made_at(case), case.root.numbers.get("step", 0)
    found = _conditions(case, [name.split(".") for name in _named(unused.detail)])
    if len(found) != 1:
        return f"{case.root.advice} at {where}" if where else ""
    text, part, skips = found[0]
    if skips:
        hint = f"see the {text}, which skips {part}: {case.who} left there in step {step:g}"
    else:
        what = f"see {text}, under which {part} is called"
        hint = f"{what}: {case.who} did not take that branch in step {step:g}"
    return f"{hint}; or find_unused_parameters=True for DistributedDataParallel" + (
        f" ({where})" if where else ""
    )


def past_ddp(case: Case) -> str:
    """Steps of ranks were not reduced by DDP: where the program calls a layer by its `.module`."""
    ranks = case.root.ranks or tuple(case.session.ranks)
    each = (unreduced_steps(case.session.ranks[rank]) for rank in ranks)
    steps = next(filter(None, each), None)
    if steps is None:
        return ""
    times = f"{steps.steps} steps" if steps.steps > 1 else "a step"
    said = f"DDP reduced no gradient in {times} from step {steps.first} on"
    calls = [*_calls_of_module(case)]
    if not 0 < len(calls) <= _MAX_CALLS:
        return f"{said}: {PAST_FORWARD}"
    verb = "goes" if len(calls) == 1 else "go"
    return f"{said}: {' and '.join(calls)} {verb} past its forward; call the DDP object itself"


def _calls_of_module(case: Case) -> Iterator[str]:
    """'`model.module.rebuild(x)` (line 20 of job.py)'."""
    for file, source in _files(case):
        calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
        for call in sorted(calls, key=lambda one: one.lineno):
            match call.func:
                case ast.Attribute(attr="module"):
                    pass
                case ast.Attribute(value=ast.Attribute(attr="module"), attr=name):
                    if _NO_LAYERS.search(name):
                        continue
                case _:
                    continue
            text = shorten(ast.unparse(call), _MAX_CALL)
            yield f"`{text}` (line {call.lineno} of {os.path.basename(file)})"


def _named(names: str) -> list[str]:
    """'a.weight, a.bias and 3 more' without the count."""
    return names.partition(" and ")[0].split(", ")


def _made_at(case: Case) -> str:
    """'line 35 of job.py': where the constructor of DDP was called, by its own ops; '' for several."""
    sites = set()
    for rank in case.root.ranks[:1]:
        ops = case.session.ranks[rank].ops
        for at, comm in enumerate(ops.comm):
            if case.session.comms[comm] in _OF_CONSTRUCTOR:
                sites.add(case.session.site_of(OpRef(rank, at)))
    frame = sites.pop() if len(sites) == 1 else None
    return f"line {frame.line} of {os.path.basename(frame.file)}" if frame is not None else ""


def _conditions(case: Case, names: Sequence[Sequence[str]]) -> list[_Condition]:
    """Each once; that of the smallest part which has all of these parameters, as far as one is known."""
    columns = zip(*(name[:-1] for name in names), strict=False)
    common = takewhile(lambda column: len(set(column)) == 1, columns)
    whole = [column[0] for column in common if not column[0].isdecimal()]
    parts = [[one] for one in reversed(whole)]
    # Parameters that have no part in common may be of several parts under one condition.
    parts = parts or [list(dict.fromkeys(name[0] for name in names))]
    files = [*_files(case)]
    for several in parts:
        each = [_of_part(files, part) for part in several]
        if all(each):
            found = {one.text: one for conditions in each for one in conditions}
            return list(found.values())
    return []


def _files(case: Case) -> Iterator[tuple[str, ParsedSource]]:
    """Collect the files of the program's stacks, and what they import, and so on."""
    left = list(dict.fromkeys(one.frame.file for stack in case.reported for one in stack.frames))
    seen: set[str] = set()
    while left and len(seen) < _MAX_FILES:
        file = left.pop(0)
        if file in seen:
            continue
        seen.add(file)
        if (source := case.source.parsed(file)) is not None:
            yield file, source
            left += imported_beside(source, file)


def _of_part(files: Sequence[tuple[str, ParsedSource]], part: str) -> list[_Condition]:
    """Those of each place that uses it; [] where one uses it in any case."""
    found: list[_Condition] = []
    for file, source in files:
        for line, choice in _uses(source, part):
            conditions = [*_above(source, file, line, choice, part)]
            if not conditions:
                return []
            found += conditions[:1]
    return found


def _uses(source: ParsedSource, part: str) -> Iterator[tuple[int, ast.IfExp | None]]:
    """The lines outside of constructors where `self.box` is read, and the choice that it is one of."""
    for function in _methods_of_owners(source, part):
        choices = [node for node in ast.walk(function) if isinstance(node, ast.IfExp)]
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                    if name == part:
                        yield node.lineno, next((c for c in choices if _is_one_of(c, node)), None)


def _methods_of_owners(source: ParsedSource, part: str) -> Iterator[Function]:
    """List the methods of classes that set this part, without their constructors."""
    for owner in ast.walk(source.tree):
        if isinstance(owner, ast.ClassDef) and lines_of_attribute(
            source, owner.body[0].lineno, part
        ):
            for method in owner.body:
                if isinstance(method, Function) and method.name != "__init__":
                    yield method


def _is_one_of(choice: ast.IfExp, node: ast.AST) -> bool:
    sides = (choice.body, choice.orelse)
    return any(inner is node for side in sides for inner in ast.walk(side))


def _above(
    source: ParsedSource, file: str, line: int, choice: ast.IfExp | None, part: str
) -> Iterator[_Condition]:
    name = os.path.basename(file)
    if choice is not None:
        text = f"`if {ast.unparse(choice.test)}` (line {choice.lineno} of {name})"
        yield _Condition(text, f"self.{part}")
    functions = [one for one in path_to(source.tree, line) if isinstance(one, Function)]
    said = say_condition(source, line, functions[-1]) if functions else ""
    if found := _SAID.fullmatch(said.removeprefix("under ")):
        yield _Condition(f"{found[1]} ({found[2]} of {name})", f"self.{part}")
    for exit_ in loop_exits(source, line):
        found = _SAID.fullmatch(exit_.removesuffix(_SKIPS).removeprefix("a "))
        if exit_.endswith(_SKIPS) and found:
            yield _Condition(f"{found[1]} ({found[2]} of {name})", f"self.{part}", skips=True)
