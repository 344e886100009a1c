"""Makes `differential` importable for the tests of this folder, as for the ranks they start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from warm_python import WarmPython


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """An interpreter with torch imported, for all tests that would wait for that."""
    warm = WarmPython()
    yield warm
    warm.close()
