"""How a death is reported where memory has to do with it."""

from __future__ import annotations

import time
from dataclasses import replace

from distdbg.launch.evidence import LostRankEvidence
from tests.unit.launch.report_facts import (
    FOLDER,
    code,
    ended,
    error,
    golden,
    lost,
    reported,
    terminated,
)


def test_a_kill_of_the_rank_that_used_far_more_than_the_others_is_told_so() -> None:
    grown = LostRankEvidence(end=ended(1, signal=9, max_rss_nbytes=335 << 20))
    usual = [
        replace(lost(r, 1), end=ended(r, exit_code=1, max_rss_nbytes=49 << 20)) for r in (0, 2)
    ]
    text = reported(grown, *usual)
    assert "memory: 335.0 MiB used at most (the other ranks 49.0 MiB)" in text
    assert "  hint: see what takes memory on rank 1 alone: a scheduler, a memory" in text
    alike = [replace(one, end=replace(one.end, max_rss_nbytes=300 << 20)) for one in usual]
    assert "the other ranks" not in reported(grown, *alike)
    assert "hint: who sent SIGKILL is unknown" in reported(grown, *alike)


def test_who_got_no_more_memory_and_used_far_more_than_the_others_is_told_so() -> None:
    grown = LostRankEvidence(
        end=ended(1, exit_code=1, max_rss_nbytes=595 << 20), error=error("MemoryError: 3.4 MiB")
    )
    usual = [
        replace(lost(r, 1), end=ended(r, exit_code=1, max_rss_nbytes=56 << 20)) for r in (0, 2)
    ]
    text = reported(grown, *usual)
    assert "memory: 595.0 MiB used at most (the other ranks 56.0 MiB)" in text
    assert "  hint: see what grows on rank 1 alone: a list, a cache, a view" in text
    alike = [replace(one, end=replace(one.end, max_rss_nbytes=500 << 20)) for one in usual]
    assert "the other ranks" not in reported(grown, *alike)
    assert "hint: smaller batches" in reported(grown, *alike)


def test_a_kill_is_told_with_its_time_and_what_is_known_of_memory() -> None:
    end = ended(2, signal=9, max_rss_nbytes=3 << 30)
    lines = reported(LostRankEvidence(end=end), memory_limit="4.0 GiB (cgroup)").splitlines()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end.wall_ns // 10**9))
    assert lines[1] == (
        "  memory: 3.0 GiB used at most, limit 4.0 GiB (cgroup), no kill by the kernel's OOM killer"
    )
    assert lines[-2:] == [f"  died at {when}", f"  run folder: {FOLDER}"]
    by_agent = reported(LostRankEvidence(end=replace(end, by="agent")))
    assert "  memory: 3.0 GiB used at most\n" in by_agent
    assert "memory:" not in reported(LostRankEvidence(end=replace(end, signal=11)))


def test_a_death_for_memory_is_not_called_a_kill_by_somebody() -> None:
    first = LostRankEvidence(
        end=ended(2, cause="oom", signal=9, exit_code=None, max_rss_nbytes=412 << 20)
    )
    golden(
        reported(first, terminated(0), memory_limit="512 MiB (cgroup)"),
        [
            "OUT OF MEMORY: rank 2 was killed for memory (SIGKILL by the kernel; it had used 412.0 MiB)",
            "  memory: limit 512 MiB (cgroup)",
            "  hint: smaller batches, fewer ranks on this host, or more memory",
            "  host n14, pid 8812",
            "  rank 0 was terminated because of it",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(first) == 137


def test_a_limit_of_memory_gets_the_same_hint() -> None:
    text = reported(
        LostRankEvidence(end=ended(0, exit_code=1), error=error("MemoryError: 8.0 GiB"))
    )
    assert "hint: smaller batches" in text
