"""Generators of random numbers in the source: who draws from which, and whether ranks seed it alike. Pure.

    draws in an expression      random.random() < p    rng.random()    net.draw(rng)    torch.rand(1)
    made or seeded              random.seed(7)         rng = np.random.default_rng(SEED + rank)

A seed that depends on the rank, or none, gives each rank numbers of its own. torch's own generator has one
seed on all ranks until somebody gives it another one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from distdbg.render.enclosing import (
    CallParameter,
    Function,
    ParsedFiles,
    ParsedSource,
    argument_for,
    bound_at,
    called_name,
    function_at,
    lines_of_attribute,
    own_nodes,
    parameter_of,
    path_to,
)
from distdbg.render.finding_stacks import ReportedStack
from distdbg.render.source_line import SourceLines

#: Methods, and functions of the modules, that draw.
_DRAWS: Final = frozenset((
    "betavariate", "bernoulli", "binomial", "choice", "choices", "exponential", "expovariate", "gauss",
    "getrandbits", "integers", "multinomial", "normal", "normalvariate", "permutation", "permuted", "poisson",
    "rand", "randint", "randn", "random", "random_sample", "randperm", "randrange", "sample", "shuffle",
    "standard_normal", "uniform",
))  # fmt: skip
_NUMPY: Final = ("np", "numpy")
#: What makes a generator; a torch.Generator has a seed of its own only if it is given one.
_MAKERS: Final = frozenset(("Generator", "Random", "RandomState", "default_rng"))
_SEEDS: Final = frozenset(("manual_seed", "seed"))
#: Functions of libraries that seed all that there is.
_SEEDS_ALL: Final = re.compile(
    r"^(?:seed_everything|seed_all|set_(?:global_|random_)?seeds?|fix_seeds?)$"
)
#: In a seed that other ranks do not have.
_OF_RANK: Final = re.compile(
    r"(?<![a-z])(?:(?:get|local|global|my)_)*rank\b|\bgetpid\(|\btime(?:_ns)?\(|\burandom\(|\bhostname\b",
    re.IGNORECASE,
)
_MAX_CALLERS: Final = 4


class Seeding(StrEnum):
    """How ranks come to the numbers of a generator."""

    ALIKE = "alike"
    UNSET = "unset"
    BY_RANK = "by rank"


class Generator(NamedTuple):
    """One generator of a program."""

    name: str
    """'random', 'rng'."""
    seeding: Seeding
    file: str = ""
    line: int = 0
    """Where it is made or seeded; 0: nowhere."""


class StackLine(NamedTuple):
    """A line of a stack, and its source."""

    file: str
    line: int
    source: ParsedSource


def lines_of_stack(files: SourceLines, reported: ReportedStack) -> list[StackLine]:
    """The innermost first, as far as there is source."""
    found = []
    for one in reported.frames:
        source = files.parsed(one.frame.file)
        if source is None:
            break
        found.append(StackLine(one.frame.file, one.frame.line, source))
    return found


def drawn_from(
    expr: ast.AST, stack: Sequence[StackLine], at: int, files: ParsedFiles
) -> Iterator[Generator]:
    """Yield the generators that an expression at the line `at` of a stack draws from.

    `files` are those of the program that are known.
    """
    for node in ast.walk(expr):
        if not isinstance(node, ast.Call):
            continue
        if module := _module_of(node, stack[at].source):
            given = [word.value for word in node.keywords if word.arg == "generator"]
            found = _of(given[0], stack, at, files) if given else _of_module(module, files)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _DRAWS:
            found = _of(node.func.value, stack, at, files)
        else:
            continue
        if found is not None:
            yield found


def given_in(
    expr: ast.AST, stack: Sequence[StackLine], at: int, files: ParsedFiles
) -> Iterator[tuple[Generator, ast.Call]]:
    """Yield the generators that an expression gives to calls, which may draw from them."""
    for node in ast.walk(expr):
        if isinstance(node, ast.Call):
            for one in (*node.args, *(word.value for word in node.keywords)):
                if (found := _of(one, stack, at, files)) is not None:
                    yield found, node


def defined(name: str, files: ParsedFiles) -> tuple[str, Function] | None:
    """The one function of that name, and its file; None: there is none, or several."""
    found = [
        (file, node)
        for file, source in files.items()
        for node in ast.walk(source.tree)
        if isinstance(node, Function) and node.name == name
    ]
    return found[0] if len(found) == 1 else None


def parameter_given(function: Function, call: ast.Call, name: str) -> str:
    """The parameter for which a call gives a variable; ''."""
    places = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    places = places[1:] if places[:1] in (["self"], ["cls"]) else places
    for place, given in zip(places, call.args, strict=False):
        if ast.unparse(given) == name:
            return place
    return next((word.arg or "" for word in call.keywords if ast.unparse(word.value) == name), "")


def draws_of(function: Function, name: str) -> Iterator[ast.Call]:
    """The calls in a function that draw from its parameter."""
    for node in own_nodes(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=known), attr=drawn)):
                if known == name and drawn in _DRAWS:
                    yield node


def _module_of(call: ast.Call, source: ParsedSource) -> str:
    """'random', 'np.random', 'torch' where one of their functions draws; ''."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="random"), attr=name) if name in _DRAWS:
            return "random" if _imports(source, "random") else ""
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id=np), attr="random"), attr=name):
            return "np.random" if np in _NUMPY and name in _DRAWS else ""
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return "torch" if name in _DRAWS else ""
        case ast.Name(id=name) if name in _DRAWS:
            known = (n for n in ast.walk(source.tree) if isinstance(n, ast.ImportFrom))
            is_of_it = any(
                n.module == "random" and name in {a.name for a in n.names} for n in known
            )
            return "random" if is_of_it else ""
    return ""


def _imports(source: ParsedSource, module: str) -> bool:
    nodes = (n for n in ast.walk(source.tree) if isinstance(n, ast.Import))
    return any(one.name == module for node in nodes for one in node.names)


def _of_module(module: str, files: ParsedFiles) -> Generator | None:
    """None where a function of a library may seed it."""
    seeds: list[tuple[str, ast.Call]] = []
    trees = [source.tree for source in files.values()]
    own = {n.name for tree in trees for n in ast.walk(tree) if isinstance(n, Function)}
    for file, source in files.items():
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            name = called_name(node)
            if _SEEDS_ALL.match(name) and name not in own:
                return None
            is_seed = name in _SEEDS and isinstance(node.func, ast.Attribute)
            if is_seed and ast.unparse(node.func).replace("numpy", "np").startswith(f"{module}."):
                seeds.append((file, node))
    if not seeds:
        return Generator(module, Seeding.ALIKE if module == "torch" else Seeding.UNSET)
    file, seed = seeds[-1]
    return Generator(module, _seeding(seed, files[file], files), file, seed.lineno)


def _of(
    expr: ast.expr,
    stack: Sequence[StackLine],
    at: int,
    files: ParsedFiles,
    depth: int = 0,
) -> Generator | None:
    """The generator that a name, or an attribute of self, stands for; None: it is none."""
    place = stack[at]
    match expr:
        case ast.Name(id=name):
            function = function_at(place.source, place.line)
            if function is not None:
                if lines := [*bound_at(function, name)]:
                    return _made_at(place.file, place.source, files, lines, name)
                if (parameter := parameter_of(function, name)) is not None:
                    if depth == _MAX_CALLERS or at + 1 >= len(stack):
                        return None
                    given = _given(stack[at + 1], parameter)
                    found = None if given is None else _of(given, stack, at + 1, files, depth + 1)
                    return None if found is None else found._replace(name=name)
            for file, source in {place.file: place.source, **files}.items():
                if lines := [*bound_at(source.tree, name)]:
                    return _made_at(file, source, files, lines, name)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            lines = lines_of_attribute(place.source, place.line, name)
            return (
                _made_at(place.file, place.source, files, lines, f"self.{name}") if lines else None
            )
    return None


def _given(caller: StackLine, parameter: CallParameter) -> ast.expr | None:
    """What the line of a caller gives a parameter."""
    statement = path_to(caller.source.tree, caller.line)[-1]
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and called_name(node) == parameter.function:
            return argument_for(node, parameter)
    return None


def _made_at(
    file: str,
    source: ParsedSource,
    files: ParsedFiles,
    lines: Sequence[int],
    name: str,
) -> Generator | None:
    """By the one line that binds it."""
    if len(lines) != 1:
        return None
    statement = path_to(source.tree, lines[0])[-1]
    value = getattr(statement, "value", None)
    made = [n for n in ast.walk(value) if isinstance(n, ast.Call)] if value is not None else []
    maker = next((call for call in made if called_name(call) in _MAKERS), None)
    if maker is None:
        return None
    calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call)]
    seeds = [call for call in calls if _seeds(call, maker, name)]
    if seeds:
        last = seeds[-1]
        return Generator(name, _seeding(last, source, files), file, last.lineno)
    if called_name(maker) == "Generator" and not maker.args:
        return Generator(name, Seeding.ALIKE, file, lines[0])  # torch's, of one seed for all
    return Generator(name, _seeding(maker, source, files), file, lines[0])


def _seeds(call: ast.Call, maker: ast.Call, name: str) -> bool:
    """Whether it seeds the generator: `rng.seed(3)`, `torch.Generator().manual_seed(3)`."""
    if called_name(call) not in _SEEDS or not isinstance(call.func, ast.Attribute):
        return False
    return ast.unparse(call.func.value) == name or any(maker is n for n in ast.walk(call.func))


def _seeding(call: ast.Call, source: ParsedSource, files: ParsedFiles) -> Seeding:
    """By what makes a generator, or seeds it."""
    given = [*call.args, *(word.value for word in call.keywords)]
    if not given or (isinstance(given[0], ast.Constant) and given[0].value is None):
        return Seeding.UNSET
    texts = [ast.unparse(given[0])]
    path = path_to(source.tree, call.lineno)
    scopes = [one for one in path if isinstance(one, Function | ast.Module)]
    for name in (node.id for node in ast.walk(given[0]) if isinstance(node, ast.Name)):
        lines = [at for scope in scopes for at in bound_at(scope, name)]
        texts += [source.lines[at - 1] for at in lines if at <= call.lineno]
        for function in (scope for scope in scopes if isinstance(scope, Function)):
            texts += _given_for(function, name, files)
    return Seeding.BY_RANK if any(map(_OF_RANK.search, texts)) else Seeding.ALIKE


def _given_for(function: Function, name: str, files: ParsedFiles) -> Iterator[str]:
    """What the program gives a parameter, wherever it calls that function."""
    parameter = parameter_of(function, name)
    if parameter is None:
        return
    for source in files.values():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and called_name(node) == function.name:
                value = argument_for(node, parameter)
                yield from () if value is None else (ast.unparse(value),)
