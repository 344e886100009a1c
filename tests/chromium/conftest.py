"""A browser for the tests of this folder; it is started once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "unit" / "render"))

from browser import Browser, find_chromium  # noqa: E402


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("chromium is not installed")
    browser = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
