from __future__ import annotations

import importlib
import runpy
from pathlib import Path

import pytest

from tests.fuzz import harness


def test_the_fuzzer_finds_nothing_in_a_second() -> None:
    fuzzer = runpy.run_path(str(Path(__file__).parent / "fuzz_record.py"))
    fuzzer["fuzz_blindly"](1.0, 1)


@pytest.mark.parametrize("name", ["torch", "api", "debugger", "tree", "http", "link"])
@pytest.mark.slow
def test_the_others_find_nothing_in_a_moment(name: str) -> None:
    fuzzer = importlib.import_module(f"tests.fuzz.fuzz_{name}")
    assert harness.run(fuzzer.one, 0.4, 1, f"fuzz_{name}")
