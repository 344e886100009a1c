"""The title of a report."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.render.words import tag_text


@pytest.mark.parametrize(
    ("kind", "severity", "what", "tag"),
    [
        (FindingKind.DEAD_RANK, Severity.ERROR, "rank 1 raised ValueError: no data", "FAILED"),
        (FindingKind.DEAD_RANK, Severity.ERROR, "rank 1 was killed by SIGKILL", "RANK DIED"),
        (FindingKind.NAN_SOURCE, Severity.ERROR, "rank 1 gave NaN", "FAILED: NaN source"),
        (FindingKind.STRAGGLER, Severity.WARNING, "rank 3 is slow", "warning: straggler"),
    ],
)
def test_an_error_is_titled_by_its_word_and_more_only_where_the_word_says_little(
    kind: FindingKind, severity: Severity, what: str, tag: str
) -> None:
    assert tag_text(Finding(kind=kind, severity=severity, what=what)) == tag
