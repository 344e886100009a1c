"""Options of the check for the groups of a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """checked(NONFINITE=1) sets DISTDBG_CHECK_NONFINITE for the groups made from then on."""

    def turn_on(every: int = 0, **names: int) -> None:
        for name, value in names.items():
            monkeypatch.setenv(f"DISTDBG_CHECK_{name}", str(value))
        monkeypatch.setenv("DISTDBG_CHECKSUM_EVERY", str(every))

    return turn_on
