"""What torch's documentation shows, four ways: plain, watched at INFO and at DETAIL, on our backend.

The results are the same to the last bit: on two ranks every order of adding up is the same one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from torch_examples import EXAMPLES, run_all  # noqa: E402 - it imports torch
from warm_ranks import run_warm_ranks  # noqa: E402

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.timeout(1200)]

WAYS = {"plain": "gloo", "info": "gloo", "detail": "gloo", "distdbg": "distdbg"}
Found = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def found(warm_python: WarmPython, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """By way, then by rank, then by example."""
    results: Found = {}
    for way, backend in WAYS.items():
        folder: Path = tmp_path_factory.mktemp(way)
        env: dict[str, Any] = {
            "BACKEND": backend,
            "WAY": way,
            "TORCH_FILE": os.fspath(folder / "torch-store"),
            "DISTDBG_RUN_DIR": os.fspath(folder / "run"),
            "DISTDBG_DEBUG": "info" if way == "info" else "detail",
            "OMP_NUM_THREADS": "1",
        }
        results[way] = run_warm_ranks(warm_python, folder, run_all, 2, env=env)
    return results


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_plain_example_runs(name: str, found: Found) -> None:
    for result in found["plain"]:
        assert result[name][0] in '["', result[name]


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_computes_the_same_in_each_way(name: str, way: str, found: Found) -> None:
    assert [result[name] for result in found[way]] == [result[name] for result in found["plain"]]
