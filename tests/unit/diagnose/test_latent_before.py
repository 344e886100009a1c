"""An error of the program itself after a latent one, which may be the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdbg.diagnose.find.latent_before import tell_latent_before
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.record.format import Exit
from tests.support.session_builder import SessionBuilder

FAILED = Finding(
    kind=FindingKind.DEAD_RANK,
    severity=Severity.ERROR,
    what="ranks 0-2 raised RuntimeError: replicas differ",
    ranks=(0, 1, 2),
    at_ns=50,
    evidence=(Evidence(text="at job.py:34 (compare)"),),
    advice=Advice("look at job.py:34", Trait.OWN_ERROR),
)
LEAKED = Finding(
    kind=FindingKind.LEAKED_WORK,
    severity=Severity.WARNING,
    what="ranks 0-2 never waited for all_reduce on group 'world' at a.py:12 (start), 44 times",
    ranks=(0, 1, 2),
    at_ns=20,
    evidence=(
        Evidence(text="rank 0 started it at a.py:12 (start)", site="a.py:12 (start)"),
        Evidence(text="rank 0 dropped its Work at a.py:34 (mean)", site="a.py:34 (mean)"),
    ),
)


def failed(error: str = "RuntimeError: replicas differ") -> Session:
    build = SessionBuilder(3)
    build.exit(0, Exit.RAISED, at_s=3, what=error)
    return build.session


def test_what_was_told_before_is_where_to_look_first() -> None:
    found, left = tell_latent_before([FAILED, LEAKED], failed())
    assert left is LEAKED
    assert found.advice == (
        f"look at a.py:34 first, which drops its Work: {LEAKED.what}; what that op gave may be wrong"
    )
    assert found.has(Trait.ERROR_PLACE)
    assert found.has(Trait.OWN_ERROR)
    assert found.evidence[-1].text == f"before it, {LEAKED.what}"
    assert (found.what, found.ranks) == (FAILED.what, FAILED.ranks)


@pytest.mark.parametrize(
    "other",
    [
        replace(LEAKED, at_ns=60),  # a consequence
        replace(LEAKED, ranks=(3,)),
        replace(LEAKED, kind=FindingKind.LEAKED_GROUP),
    ],
)
def test_what_came_later_or_of_another_rank_is_no_reason(other: Finding) -> None:
    assert tell_latent_before([FAILED, other], failed())[0] is FAILED


def test_an_error_that_says_its_reason_stays_as_it_is() -> None:
    known = replace(FAILED, advice="raise the limit")
    assert tell_latent_before([known, LEAKED], failed())[0] is known


def test_of_an_error_that_is_no_check_it_is_evidence_alone() -> None:
    found = tell_latent_before([FAILED, LEAKED], failed("ValueError: image 7 is truncated"))[0]
    assert found.advice == FAILED.advice
    assert found.evidence[-1].text == f"before it, {LEAKED.what}"


def test_of_a_buffer_race_the_line_of_the_op_is_told() -> None:
    race = replace(LEAKED, kind=FindingKind.BUFFER_RACE)
    found = tell_latent_before([FAILED, race], failed())[0]
    assert found.advice.startswith("look at a.py:12 first: ")
