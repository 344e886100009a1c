"""The types that Grafana publishes know all that is in a dashboard."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.check_schema import compile_boards, install


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("schema")
    try:
        install(folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("npm does not get Grafana's types")
    return folder


@pytest.mark.slow
@pytest.mark.node
def test_every_dashboard_has_the_types_of_grafana(compiler: Path, boards: dict[str, Any]) -> None:
    assert compile_boards(compiler, boards) == ""


@pytest.mark.slow
@pytest.mark.node
@pytest.mark.parametrize(("key", "value"), [("colour", "red"), ("schemaVersion", "41")])
def test_a_mistake_is_found(compiler: Path, boards: dict[str, Any], key: str, value: str) -> None:
    wrong = {"wrong.json": {**boards["distdbg-overview.json"], key: value}}
    assert "error TS" in compile_boards(compiler, wrong)
