"""What a dashboard that stays open over the end of a job takes from its records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.client.feed.final import diagnosed
from distdbg.diagnose.load import run_folder

if TYPE_CHECKING:
    import pytest


def test_without_a_run_the_words_of_the_agent_stay(tmp_path: Path) -> None:
    assert diagnosed(None) is None
    assert diagnosed(tmp_path) is None


def test_a_diagnosis_that_fails_does_not_end_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise IndexError(path)

    monkeypatch.setattr(run_folder, "load_run", fail)
    assert diagnosed(tmp_path) is None
