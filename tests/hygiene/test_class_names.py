"""No two public classes have one name: whoever reads a name, or looks for it, finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

#: Names that several classes still have, and why; the list only shrinks.
SHARED: Final[Mapping[str, str]] = {
    "DistributedDataParallel": "public, and what stands in for it where there is no torch",
}


def classes(tree: ast.Module) -> list[str]:
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def holders() -> dict[str, list[str]]:
    """Modules by the public classes that they define."""
    found = defaultdict(list)
    for path in sorted((ROOT / "distdbg").rglob("*.py")):
        for name in classes(ast.parse(path.read_text())):
            found[name].append(str(path.relative_to(ROOT)))
    return found


def test_one_class_has_one_name() -> None:
    shared = {name: paths for name, paths in holders().items() if len(paths) > 1}
    assert {name: shared[name] for name in shared.keys() - SHARED.keys()} == {}


def test_the_list_of_shared_names_only_shrinks() -> None:
    found = holders()
    assert [name for name in SHARED if len(found.get(name, ())) < 2] == []


def test_private_classes_are_not_counted() -> None:
    assert classes(ast.parse("class A: ...\nclass _A: ...")) == ["A"]
