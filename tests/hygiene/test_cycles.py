"""No two modules import each other, on whatever way: whoever reads one need not read the other first.

Counted are imports at the top of a module, those below `if TYPE_CHECKING`, and those in functions. So an
import in a function is there for a faster start, and not to break a cycle. A part that needs something of
the whole says what in a Protocol of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
Edges = AbstractSet[tuple[str, str]]


def modules() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "distdbg").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """What may be a module: `from a import b` names a.b, or b in a."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert not node.level, "imports name the whole module"
    assert node.module is not None
    yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def edges() -> Edges:
    paths = modules()
    found: set[tuple[str, str]] = set()
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for name in imported(node):
                home = name if name in paths else name.rpartition(".")[0]
                if home in paths and home not in (module, "distdbg"):
                    found.add((module, home))
    return found


def find_cycle(found: Edges) -> list[str]:
    """The modules of one cycle, in order; [] where there is none."""
    after: dict[str, list[str]] = {}
    for one, other in sorted(found):
        after.setdefault(one, []).append(other)
    done: set[str] = set()
    path: list[str] = []

    def follow(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        path.append(module)
        for other in after.get(module, ()):
            if cycle := follow(other):
                return cycle
        done.add(path.pop())
        return []

    for module in after:
        if cycle := follow(module):
            return cycle
    return []


@pytest.mark.slow
def test_no_modules_import_each_other() -> None:
    cycle = find_cycle(edges())
    assert not cycle, f"modules import each other: {' -> '.join(cycle)}"


def test_a_cycle_is_found() -> None:
    chain = {("a", "b"), ("b", "c"), ("a", "c")}
    assert find_cycle(chain) == []
    assert find_cycle(chain | {("c", "a")}) == ["a", "b", "c", "a"]
