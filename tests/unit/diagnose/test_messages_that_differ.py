"""Messages whose two sides give arrays of other sizes."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.stale_receive import tell_stale_receive
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Status
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.test_mismatch import error

SAID = "message on group 'world' differs between ranks: rank 0 sent 86 float64, rank 1 expects 92 float64"


def test_a_send_in_flight_that_fails_with_a_message_has_no_finding_of_its_own() -> None:
    build = SessionBuilder(3)
    failed = {"at_s": 1, "status": Status.MISMATCH}
    # It fails first, and what it failed with was told to the thread that waits elsewhere.
    build.op(1, "send", peer=2, ended_s=1.5, site="/j/p.py:36 (give)", **failed)
    build.op(0, "send", peer=1, ended_s=2, error=error(SAID, group="world"), **failed)
    build.op(1, "recv", peer=0, ended_s=2, error=error(SAID, group="world"), **failed)
    verdict = diagnose(build.session)
    found = [one for one in verdict.findings if one.kind is FindingKind.MISMATCH]
    assert len(found) == 1
    assert found[0].what.startswith(
        "message on group 'world' differs between ranks: rank 0 sent 86"
    )


MESSAGE = Finding(
    kind=FindingKind.MISMATCH,
    severity=Severity.ERROR,
    what=SAID,
    victims=(0, 1),
    advice="both sides must",
)
LEFT = Finding(
    kind=FindingKind.LEAKED_WORK,
    severity=Severity.WARNING,
    what="ranks 0-1 never waited for recv on group 'world' at p.py:29 (collect)",
    evidence=(Evidence(text="started it at p.py:29 (collect)", site="p.py:29 (collect)"),),
)


def test_a_receive_that_nobody_waited_for_leads_a_message_of_another_size() -> None:
    found, left = tell_stale_receive([MESSAGE, LEFT])
    assert left is LEFT
    assert found.what == SAID
    assert found.evidence[0].text == LEFT.what
    assert found.advice.startswith("wait for the recv at p.py:29 before its array is read")


@pytest.mark.parametrize(
    "others",
    [
        [],
        [
            Finding(
                kind=FindingKind.LEAKED_WORK,
                severity=Severity.WARNING,
                what="rank 0 never waited for send",
            )
        ],
        [
            Finding(
                kind=FindingKind.LEAKED_GROUP, severity=Severity.WARNING, what="rank 0 made a group"
            )
        ],
    ],
    ids=["nothing", "a send", "a group"],
)
def test_what_else_was_left_says_nothing_of_a_message(others: list[Finding]) -> None:
    assert tell_stale_receive([MESSAGE, *others])[0] is MESSAGE


def test_of_a_collective_it_says_nothing() -> None:
    other = Finding(
        kind=FindingKind.MISMATCH, severity=Severity.ERROR, what="all_reduce #3 differs"
    )
    assert tell_stale_receive([other, LEFT]) == [other, LEFT]
