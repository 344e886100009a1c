"""Names in the code are the trade's words, as in docs/reference/glossary.md; none is the house's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: What stood for several things at once, or for what has a name elsewhere.
OWN: Final = re.compile(r"(?:^|_)(?:un)?(?:told|seats?|circles?|doors?)(?:_|$)|Told|Seat|Circle")
#: What a file with such a name has in it; most have not, and need not be read further.
LIKELY: Final = re.compile("told|seat|circle|door", re.IGNORECASE)
#: Where a circle is what is drawn.
DRAWN: Final = "distdbg/render/svg.py"


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.keyword(arg=str(name)):
                yield name


def test_no_name_is_a_word_of_our_own() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("distdbg", "benchmarks", "dashboards", "docs", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if LIKELY.search(text := path.read_text())
        for name in names(ast.parse(text))
        if OWN.search(name) and str(path.relative_to(ROOT)) != DRAWN
    }
    assert not found


def test_names_are_found_and_words_that_only_contain_one_are_not() -> None:
    source = "def is_told(seat, *, door=1):\n    try: ToldStack().untold\n    except E as told: f(circle=1)"
    assert {name for name in names(ast.parse(source)) if OWN.search(name)} == {
        "is_told", "seat", "door", "ToldStack", "untold", "told", "circle",
    }  # fmt: skip
    assert not any(OWN.search(name) for name in ("outdoors", "is_reported", "retold"))
