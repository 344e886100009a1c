"""A short walk of the long random program; `python -m benchmarks.soak` is the whole way."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak.__main__ import find_growth, find_memory_growth, run

#: Plans and forms are still being made on so short a way; 1 KiB lost with each op would be seen.
_MOST_GROWTH_KIB = 8192


@pytest.mark.slow
@pytest.mark.ranks
def test_random_legal_programs_find_nothing_and_leave_nothing(tmp_path: Path) -> None:
    reports, faults = run(
        tmp_path, 8_000, 4, seed=7, early=1_000, limit_s=58.0, most_growth_kib=_MOST_GROWTH_KIB
    )
    assert faults == []
    assert reports[0]["ops"] >= 8_000
    assert reports[0]["groups_made"] > 20
    kinds = reports[0]["kinds"]
    assert all(report["kinds"] == kinds for report in reports)
    assert min(kinds.values()) >= 1
    assert {"monitored_barrier", "message", "batch", "coalescing_manager"} <= kinds.keys()


def test_what_grew_is_named() -> None:
    first = {"store_keys": 20, "anonymous_kib": 1000}
    assert find_growth(first, {"store_keys": 19, "anonymous_kib": 3000}) == []
    assert find_growth(first, {"store_keys": 21, "anonymous_kib": 1000}) == [
        "store_keys grew from 20 to 21"
    ]


def test_memory_may_go_up_and_down_but_not_up_and_up() -> None:
    assert find_memory_growth([10, 50, 20, 40, 10, 52], 2) == []
    assert find_memory_growth([10, 20, 30, 40, 50, 60], 2) == [
        "the peak of its own memory grew from 30 to 60 KiB"
    ]
