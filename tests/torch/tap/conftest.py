"""`watched` runs a function on two ranks with torch, whose groups are watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm_ranks import run_warm_ranks

if TYPE_CHECKING:
    from warm_python import WarmPython

HERE = os.fspath(Path(__file__).parent)


@pytest.fixture
def watched(warm_python: WarmPython, tmp_path: Path) -> Callable[..., list[Any]]:
    def run(
        function: Callable[..., Any],
        level: str = "detail",
        more_env: dict[str, str] | None = None,
        **more: Any,
    ) -> list[Any]:
        env = {
            "PYTHONPATH": os.pathsep.join([HERE, os.path.dirname(HERE)]),
            "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
            "DISTDBG_DEBUG": level,
            "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
            "OMP_NUM_THREADS": "1",
            **(more_env or {}),
        }
        return run_warm_ranks(warm_python, tmp_path, function, 2, env=env, **more)

    return run
