"""The table of promises in docs/reference/parity.md: every test of tests/parity has its row, and runs."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "parity"
HERE = {"as torch", "stricter", "more", "different", "missing"}


@pytest.fixture(scope="module")
def table() -> ModuleType:
    path = ROOT / "docs" / "parity_table.py"
    spec = importlib.util.spec_from_file_location("parity_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def promises_of(section: str) -> dict[str, Callable[..., None]]:
    module = importlib.import_module(f"tests.parity.test_{section}")
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


def test_every_file_has_a_section(table: ModuleType) -> None:
    files = {path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py")}
    assert files == set(table.SECTIONS)


def test_every_test_has_a_promise_and_every_row_its_test(table: ModuleType) -> None:
    for section in table.SECTIONS:
        found = {row.test.rpartition("::")[2]: row for row in table.rows(section)}
        tests = promises_of(section)
        assert set(found) == set(tests)
        for name, row in found.items():
            assert tests[name].promise == (row.words, row.here, row.note)  # type: ignore[attr-defined]


def test_a_promise_is_one_row_in_one_line(table: ModuleType) -> None:
    words = []
    for section in table.SECTIONS:
        for row in table.rows(section):
            assert row.here in HERE
            assert row.note or row.here not in ("different", "missing")
            assert not set("|\n") & set(row.words + row.note)
            assert not row.words.endswith(".")
            words.append(row.words)
    assert len(words) == len(set(words))
    assert len(words) >= 132


def test_the_page_has_the_table(table: ModuleType) -> None:
    text = (ROOT / "docs" / "reference" / "parity.md").read_text()
    assert table.BEGIN in text
    assert text.index(table.BEGIN) < text.index(table.END)
    rows = re.findall(r"^\| .* \| `(tests/parity/test_\w+\.py)::(\w+)` \|$", text, re.MULTILINE)
    assert len(rows) >= 132
    for path, name in rows:
        assert f"def {name}(" in (ROOT / path).read_text()
