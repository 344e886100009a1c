"""What the tests leave out is said once per reason, and `make check` leaves out nothing that it could run."""

from __future__ import annotations

from typing import Any

import pytest

from tests import left_out


def skip(reason: str, *, is_file: bool = False) -> Any:
    kind = pytest.CollectReport if is_file else pytest.TestReport
    report = object.__new__(kind)
    report.outcome = "skipped"
    report.longrepr = ("tests/a/test_b.py", 7, f"Skipped: {reason}")
    return report


def test_a_line_per_reason_with_what_runs_them() -> None:
    missing = "could not import 'torch.nn': No module named 'torch'"
    reports = [
        skip(missing, is_file=True),
        *(skip(left_out.SLOW) for _ in range(12)),
        skip(missing),
        skip("needs a GPU"),
    ]
    assert left_out.say(reports) == [
        "left out 12 tests         : slow (`make check` runs them)",
        "left out 1 test and 1 file: torch is not installed (`make check` installs it and runs them)",
        "left out 1 test           : needs a GPU (`make check` leaves them out as well)",
    ]


@pytest.mark.parametrize("reason", ["tmux is not installed", "slow", "somebody was lazy"])
def test_what_could_run_may_not_be_skipped(reason: str) -> None:
    report = skip(reason)
    left_out.refuse(report)
    assert report.outcome == "failed"
    assert reason in report.longrepr


@pytest.mark.parametrize("reason", ["needs a GPU", "this kernel has no IPv6"])
def test_what_cannot_run_may_be(reason: str) -> None:
    report = skip(reason)
    left_out.refuse(report)
    assert report.outcome == "skipped"


def test_an_expected_failure_is_no_skip() -> None:
    report = skip("waits for a change")
    report.wasxfail = "reason"
    left_out.refuse(report)
    assert report.outcome == "skipped"
