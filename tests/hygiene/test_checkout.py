"""Rules about the files of the checkout that no other tool checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "distdbg",
    "native",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "scripts",
    "dashboards",
    ".ci",
)
SUFFIXES = {".py", ".cpp", ".hpp", ".md", ".sh", ".toml", ".yml", ".txt", ""}
#: 400 is the aim; beyond this a file holds more than one thing.
LINES_ALLOWED = 500


def texts() -> dict[str, str]:
    files = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted(files)
        if path.is_file() and "_build" not in path.parts and "__pycache__" not in path.parts
    }


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    begin = " ".join(lines[:20])
    assert "make demo" in begin
    assert "make test" in begin


@pytest.mark.parametrize("folder", ["distdbg", "native"])
def test_no_source_file_is_a_giant(folder: str) -> None:
    giants = {
        name: text.count("\n")
        for name, text in texts().items()
        if name.startswith(f"{folder}/") and text.count("\n") > LINES_ALLOWED
    }
    assert not giants


def test_every_python_module_says_what_it_holds() -> None:
    silent = [
        name
        for name, text in texts().items()
        if name.startswith("distdbg/") and name.endswith(".py")
        if text.strip() and not re.match(r'(#.*\n)*r?"""', text)
    ]
    assert not silent


def test_no_file_holds_a_conflict_or_an_unfinished_mark() -> None:
    # Put together here so that this file does not contain what it forbids.
    forbidden = ["<" * 7, ">" * 7, "TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"]
    found = [
        (name, word)
        for name, text in texts().items()
        for word in forbidden
        if word in text and name != "LICENSE"
    ]
    assert not found


def test_every_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    tomllib.loads(text)
    start, end = text.index("dependencies = ["), text.index("[tool.scikit-build]")
    lines = [line.strip() for line in text[start:end].splitlines()]
    silent = [line for line in lines if line.startswith('"') and "#" not in line]
    assert not silent
