"""No warning in random programs without a mistake; `legal_ops.py --ops=1000000` runs more of them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

run = runpy.run_path(str(Path(__file__).parent / "legal_ops.py"))["run"]


@pytest.mark.parametrize("ranks", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_legal_program_sees_no_warning(ranks: int) -> None:
    assert run(seed=ranks, ops=150, ranks=ranks) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_thousands_of_legal_ops_see_no_warning(seed: int) -> None:
    assert run(seed=seed, ops=1500, ranks=2 + seed % 3) == []
