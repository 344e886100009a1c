"""A short walk of the long random program; `python -m benchmarks.soak` is the whole way."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak.__main__ import MOST_GROWTH_KIB, find_growth, run


@pytest.mark.slow
@pytest.mark.ranks
def test_random_legal_programs_find_nothing_and_leave_nothing(tmp_path: Path) -> None:
    reports, faults = run(tmp_path, 20_000, 4, seed=7, limit_s=50.0)
    assert faults == []
    assert reports[0]["ops"] >= 20_000
    assert reports[0]["groups_made"] > 20
    kinds = reports[0]["kinds"]
    assert all(report["kinds"] == kinds for report in reports)
    assert min(kinds.values()) >= 1
    assert {"monitored_barrier", "message", "batch", "coalescing_manager"} <= kinds.keys()


def test_what_grew_is_named_and_memory_may_differ_a_little() -> None:
    first = {"store_keys": 20, "anonymous_kib": 1000}
    assert find_growth(first, {"store_keys": 19, "anonymous_kib": 1000 + MOST_GROWTH_KIB}) == []
    last = {"store_keys": 21, "anonymous_kib": 1001 + MOST_GROWTH_KIB}
    assert find_growth(first, last) == [
        "store_keys grew from 20 to 21",
        f"anonymous_kib grew from 1,000 to {1001 + MOST_GROWTH_KIB:,}",
    ]
