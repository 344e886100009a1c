"""What reports and hints choose by is a field of a finding, never a word of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import distdbg

#: Fields whose value is a sentence for people.
_SENTENCES = frozenset(("advice", "what", "text", "evidence"))
#: Of what: the fields of a path or a frame are called so as well.
_OWNERS = frozenset(("root", "finding", "diagnosis", "fact", "verdict", "error", "known", "shown"))
_ROOT = Path(distdbg.__file__).parent


def _is_sentence(node: ast.AST) -> bool:
    """`root.advice`, `outcome.diagnosis.what`, `finding["what"]`."""
    if isinstance(node, ast.Attribute) and node.attr in _SENTENCES:
        owner = node.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        return name in _OWNERS
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value in _SENTENCES and getattr(node.value, "id", "") in _OWNERS
    return isinstance(node, ast.Call) and any(map(_is_sentence, node.args)) and _is_str(node.func)


def _is_str(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "str"


def _parses(tree: ast.AST) -> Iterator[int]:
    methods = ("startswith", "endswith", "partition", "rpartition", "split", "find", "index")
    searches = ("search", "match", "fullmatch", "findall")
    for node in ast.walk(tree):
        read: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            read += [node.func.value] if node.func.attr in methods else []
            read += node.args if node.func.attr in searches else []
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant | ast.JoinedStr):
            read += node.comparators
        yield from [node.lineno] if any(map(_is_sentence, read)) else ()


def test_no_report_and_no_hint_reads_the_words_of_a_finding() -> None:
    found = {
        f"{path.relative_to(_ROOT)}:{line}"
        for folder in ("launch", "render", "agent")
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for line in _parses(ast.parse(path.read_text()))
    }
    # Whether a line of a report repeats another one is no question of what it means.
    assert {one.partition(":")[0] for one in found} == {"render/short.py"}


def test_it_would_be_seen() -> None:
    for text in (
        "root.advice.startswith('see')",
        "'asleep' in finding.what",
        "re.compile('x').search(outcome.diagnosis.what)",
        "str(finding['what']).partition(' ')",
    ):
        assert [*_parses(ast.parse(text))] == [1], text
    assert not [*_parses(ast.parse("frame.text.startswith('x') or 'a' in finding.ranks"))]
