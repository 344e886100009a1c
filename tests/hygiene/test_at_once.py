"""A failure is said while the tests still run, with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.at_once import AtOnce, lines_of


def report(outcome: str, message: str) -> Any:
    made = object.__new__(pytest.TestReport)
    made.nodeid, made.when, made.outcome = "tests/a/test_b.py::test_c", "call", outcome
    made.longrepr = SimpleNamespace(reprcrash=SimpleNamespace(message=message))
    return made


def test_a_failure_has_its_test_and_the_first_lines_of_why() -> None:
    head, *why = lines_of(report("failed", "AssertionError: page.md:7: 'a word'\nmore\n"))
    assert head == "FAILED tests/a/test_b.py::test_c (call)"
    assert why == ["  AssertionError: page.md:7: 'a word'", "  more"]
    long = lines_of(report("failed", "\n".join(map(str, range(100)))))
    assert long[-2:] == ["  11", "  ... 88 more lines"]


def test_what_passes_is_not_told() -> None:
    lines: list[str] = []
    terminal = SimpleNamespace(
        ensure_newline=lambda: None, write_line=lines.append, flush=lambda: None
    )
    plugins = SimpleNamespace(get_plugin=lambda name: terminal)
    # The one thing that the plugin asks of a Config.
    plugin = AtOnce(SimpleNamespace(pluginmanager=plugins))  # type: ignore[arg-type]
    plugin.pytest_runtest_logreport(report("passed", ""))
    assert lines == []
    plugin.pytest_runtest_logreport(report("failed", "no"))
    assert lines == ["FAILED tests/a/test_b.py::test_c (call)", "  no"]
