from __future__ import annotations

from pathlib import Path
from typing import Any

from distdbg.debugger.deaths import Deaths
from distdbg.record.ends import RankEnd, write_end

NOW_NS = 1_790_000_000_000_000_000


def end(rank: int, **words: Any) -> RankEnd:
    facts: dict[str, Any] = {"pid": 40 + rank, "host": "n01", "ended_ns": 1, "wall_ns": NOW_NS}
    return RankEnd(rank=rank, **{**facts, "cause": "signal", "signal": 9, **words})


def test_a_death_is_told_once_with_its_age() -> None:
    deaths = Deaths(1, lambda: None)
    reported = deaths.report([end(2)], NOW_NS + 800_000_000)
    assert reported.startswith("*** rank 2 was killed by SIGKILL 0.80 s ago; ")
    assert reported.endswith("\n")
    assert deaths.report([end(2)], NOW_NS + 9**10) == ""
    assert "rank 3 exited with code 3 12 s ago" in deaths.report(
        [end(2), end(3, cause="exited", signal=None, exit_code=3)], NOW_NS + 12 * 10**9
    )
    assert deaths.report([end(2, pid=99)], NOW_NS)  # of another process


def test_its_own_end_a_good_one_and_one_that_was_ordered_are_none() -> None:
    good = end(2, cause="exited", signal=None, exit_code=0)
    assert Deaths(1, lambda: None).report([end(1), good, end(3, was_asked=True)], NOW_NS) == ""


def test_it_is_looked_for_twice_a_second_where_ends_are_written(tmp_path: Path) -> None:
    deaths = Deaths(1, lambda: tmp_path)
    assert deaths.read(100.0) == ""
    write_end(tmp_path, end(2))
    assert deaths.read(100.4) == ""
    assert "rank 2 was killed by SIGKILL" in deaths.read(100.6)
    assert Deaths(1, lambda: None).read(1.0) == ""
