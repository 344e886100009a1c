"""What a run of the tests leaves out: said in a line per reason, or refused where nothing may be left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pytest

SLOW = "slow"
#: Reasons that no installation changes.
_UNAVOIDABLE = re.compile(r"needs a GPU|this kernel|this user")
_MODULE = re.compile(r"could not import '([\w.]+)'|No module named '([\w.]+)'")


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why it was skipped, in the same words for the same reason."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    text = text.removeprefix("Skipped: ")
    if found := _MODULE.search(text):
        return f"{(found[1] or found[2]).partition('.')[0]} is not installed"
    return text.splitlines()[0] if text else "no reason given"


def refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a skip a failure, unless its reason is a GPU, another kernel or another user."""
    if hasattr(report, "wasxfail"):
        return
    reason = reason_of(report)
    if not _UNAVOIDABLE.search(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped, but --no-skips was given: {reason}"


def say(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """One line per reason: how many tests, why, and what runs them."""
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in reports:
        is_file = isinstance(report, pytest.CollectReport)
        (files if is_file else tests)[reason_of(report)] += 1
    counts = {
        reason: " and ".join(
            f"{count} {what}{'' if count == 1 else 's'}"
            for count, what in ((tests[reason], "test"), (files[reason], "file"))
            if count
        )
        for reason in tests | files
    }
    width = max(map(len, counts.values()), default=0)
    return [
        f"left out {count:{width}}: {reason} ({_remedy(reason)})"
        for reason, count in sorted(counts.items(), key=lambda item: item[0] != SLOW)
    ]


def _remedy(reason: str) -> str:
    if reason == SLOW:
        return "`make check` runs them"
    if _UNAVOIDABLE.search(reason):
        return "`make check` leaves them out as well"
    return "`make check` installs it and runs them"
