"""What users read has the words of docs/reference/glossary.md: its last table names those that are not used.

Checked are module docstrings (some are the text of --help), all other strings of more than one word, and the
Markdown pages. Docstrings of functions and comments are for who works on the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"
#: Records of what was decided, in the words of their day; the tools of tests.
LEFT_OUT = ("docs/decisions/", "docs/_build/", "docs/reference/glossary.md")


def forbidden() -> dict[str, str]:
    """Each phrase of the table, and what to write instead."""
    table = GLOSSARY.read_text().partition("## Words that are not used")[2]
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", table, re.MULTILINE)
    return {phrase: instead for words, instead in rows for phrase in re.findall(r"`(.+?)`", words)}


PHRASES = forbidden()
PATTERN = re.compile(
    r"(?<![\w.-])(?:"
    + "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in PHRASES)
    + r")\b",
    re.IGNORECASE,
)


def texts_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what may be printed; the fields of an f-string are `{}`."""
    nodes = list(ast.walk(ast.parse(source)))
    # Of functions and classes, and of fields: a string below the field of a class.
    left_out = {
        id(statement.value)
        for node in nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    left_out |= {
        id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            text = node.value
            if isinstance(text, str) and " " in text:
                yield node.lineno, text


def may_offend(source: str) -> bool:
    """Whether it has all words of any phrase, so that it is worth parsing."""
    words = source.lower()
    return any(all(word in words for word in phrase.split()) for phrase in PHRASES)


def offences(text: str, line: int = 1) -> Iterator[str]:
    for found in PATTERN.finditer(text):
        at = line + text.count("\n", 0, found.start())
        phrase = re.sub(r"\s+", " ", found[0])
        yield f"{at}: {phrase!r}: {PHRASES[phrase.lower()]}"


def find_all() -> list[str]:
    found = []
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    sources = [path for kind in ("*.py", "*.js") for path in (ROOT / "distdbg").rglob(kind)]
    for path in sorted([*pages, *sources]):
        name = str(path.relative_to(ROOT))
        text = "" if name.startswith(LEFT_OUT) else path.read_text(encoding="utf-8")
        if may_offend(text):
            parts = texts_of_python(text) if path.suffix == ".py" else [(1, text)]
            found += [f"{name}:{one}" for line, part in parts for one in offences(part, line)]
    return found


@pytest.fixture(scope="module")
def found() -> list[str]:
    return find_all()


@pytest.mark.slow
def test_no_word_is_used_that_the_glossary_rules_out(found: list[str]) -> None:
    assert not found, "\n".join(found)


def test_strings_are_found_with_their_lines_and_docstrings_of_functions_are_not() -> None:
    source = (
        '"""A module."""\n\ndef f(x):\n    """Not this."""\n'
        '    return f"rank {x} is " \\\n        "odd one"\n'
    )
    assert list(texts_of_python(source)) == [(1, "A module."), (5, "rank {} is odd one")]
    assert list(offences("a\nwho is to\nblame", 7)) == ["8: 'to blame': cause, caused by"]
    assert not list(offences("distdbg_rank_blamed, distdbg.rank.blamed, unknotted"))
