"""The first word of a report, by what is known."""

from __future__ import annotations

import pytest

from distdbg.diagnose import headline
from distdbg.diagnose.finding import FindingKind


@pytest.mark.parametrize(
    ("kind", "what", "word"),
    [
        (FindingKind.DEADLOCK, "ranks 0-1 wait for each other", "DEADLOCK"),
        (FindingKind.MISMATCH, "all_reduce #3 differs between ranks", "MISMATCH"),
        (FindingKind.DEAD_RANK, "rank 2 was killed by SIGKILL", "RANK DIED"),
        (
            FindingKind.DEAD_RANK,
            "rank 2 was killed for memory (SIGKILL by the kernel)",
            "OUT OF MEMORY",
        ),
        (FindingKind.DEAD_RANK, "rank 2 raised MemoryError: 3 GiB", "OUT OF MEMORY"),
        (FindingKind.DEAD_RANK, "rank 2 raised ValueError: no data", "FAILED"),
        (FindingKind.DEAD_RANK, "rank 2 exited with code 3", "FAILED"),
        (FindingKind.MISSING_RANK, "rank 2 never called all_reduce #4", "HUNG"),
        (
            FindingKind.MISSING_RANK,
            "rank 1 left while rank 0 waited for it in barrier #4",
            "MISMATCH",
        ),
        (FindingKind.MISSING_RANK, "rank 1 left while rank 0 waits for it in barrier #4", "HUNG"),
        (FindingKind.STUCK_RANK, "rank 2 is stopped", "HUNG"),
        (FindingKind.STALL, "ranks wait for rank 2", "HUNG"),
        (FindingKind.FAILED_OP, "all_reduce #4 timed out on ranks 0-1", "HUNG"),
        (FindingKind.FAILED_OP, "all_reduce #4 failed", "FAILED"),
        (FindingKind.STOPPED, "ada stopped the job", "STOPPED"),
        (FindingKind.STRAGGLER, "rank 3 is slow", "FAILED"),
    ],
)
def test_a_finding_has_one_word(kind: FindingKind, what: str, word: str) -> None:
    assert headline.of_kind(kind.value, what) == word


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"cause": "oom", "signal": 9}, "OUT OF MEMORY"),
        ({"cause": "signal", "signal": 11}, "RANK DIED"),
        ({"cause": "exited", "signal": None}, "FAILED"),
        ({"cause": "exited", "signal": None, "error_type": "MemoryError"}, "OUT OF MEMORY"),
        ({"cause": "exited", "signal": None, "error_type": "OpTimeout"}, "HUNG"),
        ({"cause": "exited", "signal": None, "error_type": "MismatchError"}, "MISMATCH"),
        ({"cause": "exited", "signal": None, "error_type": "ZeroDivisionError"}, "FAILED"),
    ],
)
def test_a_rank_that_is_gone_has_one_word(facts: dict[str, object], word: str) -> None:
    assert headline.of_end(**facts) == word  # type: ignore[arg-type]


def test_a_rank_that_did_not_use_parameters_has_not_died() -> None:
    assert (
        headline.of_kind("dead rank", "rank 2 did not use head.weight in step 1") == headline.FAILED
    )
    assert (
        headline.of_kind("dead rank", "ranks 0,2-3 did not use head.weight in step 1")
        == headline.FAILED
    )
