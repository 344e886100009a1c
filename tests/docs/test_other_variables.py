"""What the page of variables says of those of torch, gloo and NCCL, against the source."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("other_variables", ROOT / "docs/other_variables.py")
assert _spec is not None
assert _spec.loader is not None
table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "distdbg").rglob("*.py")))


def names_in(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return [name for names, _ in rows for name in re.findall(r"`([A-Z_]+)`", names)]


def is_used(name: str) -> bool:
    """As a text of its own: messages and patterns may speak of others' variables."""
    return re.search(rf"[\"']{name}[\"']", SOURCE) is not None


@pytest.mark.parametrize("name", names_in(table.READ))
def test_what_is_said_to_be_read_is_in_the_package(name: str) -> None:
    assert is_used(name)


@pytest.mark.parametrize("name", names_in(table.IGNORED))
def test_what_is_said_to_change_nothing_is_not_in_the_package(name: str) -> None:
    assert not is_used(name)
